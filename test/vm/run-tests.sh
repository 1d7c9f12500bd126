#!/bin/sh
# Runs the tests of this boot in the virtual machine, and then reboots it or
# switches it off.
set -u
state=/var/lib/nri-gpu-vm
mkdir -p $state
boot=$(($(cat $state/boot 2>/dev/null || echo 0) + 1))
echo $boot >$state/boot
/payload/guest.test -test.v=test2json -test.run "^TestBoot$boot\$" -test.timeout 20m
status=$?
echo "boot $boot ended with status $status"
sync
if [ $status = 0 ] && [ $boot = 1 ]; then
	systemctl reboot
else
	systemctl poweroff --force
fi
