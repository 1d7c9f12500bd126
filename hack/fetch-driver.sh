#!/usr/bin/env bash
# Unpacks the user space of the NVIDIA driver from Debian's non-free into the
# cache and prints the path of its root. Nothing of it is installed, and none of
# it belongs into the repository.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${NRI_GPU_CACHE:-$root/.cache}
suite=bookworm
driver=$cache/driver-$suite-1
mirror=http://deb.debian.org/debian
packages="libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 nvidia-smi libnvcuvid1 libnvidia-encode1 libnvoptix1 libnvidia-eglcore
libnvidia-glcore libnvidia-glvkspirv libnvidia-rtcore libnvidia-nvvm4 libnvidia-allocator1 libnvidia-cfg1 libnvidia-opticalflow1
libnvidia-ngx1 libnvidia-fbc1 libegl-nvidia0 libglx-nvidia0 libgles-nvidia1 libgles-nvidia2 nvidia-vulkan-icd nvidia-vulkan-common
nvidia-egl-common nvidia-egl-icd nvidia-opencl-icd libcudadebugger1 nvidia-cuda-mps nvidia-persistenced libnvidia-pkcs11-openssl3
libgl1-nvidia-glvnd-glx libnvidia-egl-gbm1 nvidia-modprobe"

if [ -e "$driver/.complete" ]; then
	echo "$driver/root"
	exit 0
fi
{
	rm -rf "$driver"
	mkdir -p "$driver/lists/partial" "$driver/packages" "$driver/root"
	for component in contrib non-free non-free-firmware; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite $component"
	done >"$driver/sources.list"
	apt=(-o Dir::Etc::SourceList="$driver/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$driver/lists" -o APT::Sandbox::User=root)
	apt-get "${apt[@]}" update -q
	echo "downloading the driver's packages, some 200 MB"
	# shellcheck disable=SC2086 # a list of words
	(cd "$driver/packages" && apt-get "${apt[@]}" download -q $packages)
	for p in "$driver"/packages/*.deb; do dpkg -x "$p" "$driver/root"; done
	rm -rf "$driver/packages" "$driver/lists"
	touch "$driver/.complete"
} >&2
echo "$driver/root"
