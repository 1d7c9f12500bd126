#!/bin/sh
# Installs the Debian packages that a target needs: install-deps.sh demo|test|vm.
# Packages that are there are left alone, and when all are, nothing is done.
set -eu

common="gcc libc6-dev runc iproute2 util-linux busybox-static debootstrap containernetworking-plugins python3"
vm="qemu-system-x86 e2fsprogs"
case "${1:-}" in
demo) packages=$common ;;
test) packages="$common $vm etcd-server podman crun" ;;
vm) packages="$common $vm" ;;
*) echo "usage: $0 demo|test|vm" >&2; exit 2 ;;
esac

missing=
for p in $packages; do
	dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
if [ -z "$missing" ]; then
	echo "all packages are installed"
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "these packages are missing, and installing them needs root:$missing" >&2
	exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # a list of words
apt-get install -y -q --no-install-recommends $missing
