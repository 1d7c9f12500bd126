#!/usr/bin/env bash
# Makes a root directory of a real Debian image in the cache and prints its
# path: glibc with its loader and ldconfig, python3, and python3-pynvml, an NVML
# client that this project did not write.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${NRI_GPU_CACHE:-$root/.cache}
suite=bookworm
image=$cache/debian-$suite-2
mirror=http://deb.debian.org/debian

if [ -e "$image/.complete" ]; then
	echo "$image/root"
	exit 0
fi
{
	rm -rf "$image"
	mkdir -p "$image/lists" "$image/apt"
	echo "making a Debian $suite image with debootstrap"
	"$root/hack/progress.sh" debootstrap --variant=minbase --include=python3-minimal,libpython3-stdlib "$suite" "$image/root" "$mirror" |
		awk 'NR % 20 == 0 {print "   … " $0; fflush()}'
	# python3-pynvml is in contrib, and depends on a driver that the container
	# gets from its node: so it is unpacked and not installed.
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite contrib" >"$image/contrib.list"
	apt=(-o Dir::Etc::SourceList="$image/contrib.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$image/lists")
	apt-get "${apt[@]}" update -q
	(cd "$image/apt" && apt-get "${apt[@]}" download -q python3-pynvml)
	dpkg -x "$image"/apt/python3-pynvml_*.deb "$image/root"
	rm -rf "$image/root/var/cache/apt" "$image/root/var/lib/apt/lists" "$image/lists" "$image/apt"
	touch "$image/.complete"
} >&2
echo "$image/root"
