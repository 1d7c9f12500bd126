#!/usr/bin/env bash
# Makes what the virtual machine of test/vm boots from, and prints the
# directory: vmlinuz, initrd.img, disk.img (Debian with systemd, runc and the
# files of test/vm/rootfs) and nvidia.ko, the module of test/fakedriver.
#
# Debian's part, the disk and the module are each made once for a state of what
# they are made from.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${NRI_GPU_CACHE:-$root/.cache}/vm
suite=bookworm
mirror=http://deb.debian.org/debian
packages=systemd-sysv,udev,dbus,iproute2,kmod,linux-image-cloud-amd64,initramfs-tools,runc,busybox-static
# For the module alone; it stays off the disk.
packages+=,linux-headers-cloud-amd64,make
disk_size=4G # sparse

# key COMMAND...: a short hash of what it prints.
key() { "$@" | sha256sum | cut -c1-16; }
# tree DIR: names, modes, targets and content of all that is in it.
tree() { (cd "$1" && find . -printf '%p %m %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

base=$cache/debian-$(key echo "$suite $packages")
disk=$cache/disk-$(key eval "echo $base $disk_size; tree $root/test/vm/rootfs")
module=$cache/module-$(key eval "echo $base; tree $root/test/fakedriver")
out=$cache/vm-$(key echo "$disk $module")

make_base() {
	echo "making the virtual machine's Debian with debootstrap"
	rm -rf "$base"
	mkdir -p "$base"
	"$root/hack/progress.sh" debootstrap --variant=minbase --include="$packages" "$suite" "$base/root" "$mirror" |
		awk 'NR % 40 == 0 {print "   … " $0; fflush()}'
	rm -rf "$base/root/var/cache/apt" "$base/root/var/lib/apt/lists"
	touch "$base/.complete"
}

make_module() {
	echo "building the module that plays the driver"
	local work=$base/root/tmp/fakedriver
	rm -rf "$module" "$work"
	mkdir -p "$module"
	cp -r "$root/test/fakedriver" "$work"
	# With the root's own compiler, which is the one that its kernel was built with.
	chroot "$base/root" sh -ec 'make -s -C /usr/src/linux-headers-*-cloud-amd64 M=/tmp/fakedriver KCFLAGS=-Werror modules'
	cp "$work/nvidia.ko" "$module/nvidia.ko"
	rm -rf "$work"
	touch "$module/.complete"
}

make_disk() {
	echo "making the virtual machine's disk"
	rm -rf "$disk"
	mkdir -p "$disk/root"
	tar -C "$base/root" --exclude=./usr/src --exclude=./usr/lib/gcc --exclude=./usr/include --exclude=./usr/share/doc --exclude=./usr/share/locale \
		--exclude=./usr/lib/linux-kbuild-* --exclude='./boot/*' -cf - . | tar -C "$disk/root" -xf -
	cp -rP --remove-destination "$root/test/vm/rootfs/." "$disk/root"
	mkdir -p "$disk/root/payload"
	cp "$base"/root/boot/vmlinuz-* "$disk/vmlinuz"
	cp "$base"/root/boot/initrd.img-* "$disk/initrd.img"
	truncate -s "$disk_size" "$disk/disk.img"
	mkfs.ext4 -q -F -d "$disk/root" "$disk/disk.img"
	rm -rf "$disk/root"
	touch "$disk/.complete"
}

{
	[ -e "$base/.complete" ] || make_base
	[ -e "$module/.complete" ] || make_module
	[ -e "$disk/.complete" ] || make_disk
	mkdir -p "$out"
	for f in "$disk/vmlinuz" "$disk/initrd.img" "$disk/disk.img" "$module/nvidia.ko"; do ln -sfn "$f" "$out/${f##*/}"; done
} >&2
echo "$out"
