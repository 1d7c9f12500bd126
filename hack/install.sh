#!/bin/sh
# Installs the daemons on this node, or below DESTDIR. Every version has a
# directory of its own, and "current" is switched in one step: what runs goes on
# with the files that it names until they are uninstalled.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
dest=${DESTDIR:-}
lib=/usr/local/lib/nri-gpu
version=${VERSION:-$("$top/bin/gpuctl" version)}
programs="nri-gpu gpu-device-plugin gpu-hook gpuctl"

say() { echo "  $1"; }

for p in $programs; do
	if [ ! -x "$top/bin/$p" ]; then
		echo "bin/$p is not built; run make build" >&2
		exit 1
	fi
done
echo "installing version $version"
mkdir -p "$dest$lib/$version" "$dest/usr/local/bin" "$dest/etc/nri-gpu" "$dest/etc/systemd/system"
for p in $programs; do
	# A program that runs cannot be written over, only replaced.
	cp "$top/bin/$p" "$dest$lib/$version/.$p.new"
	chmod 0755 "$dest$lib/$version/.$p.new"
	mv -f "$dest$lib/$version/.$p.new" "$dest$lib/$version/$p"
	say "$lib/$version/$p"
done
ln -sfn "$version" "$dest$lib/.current.new"
mv -fT "$dest$lib/.current.new" "$dest$lib/current"
say "$lib/current -> $version"
ln -sfn "$lib/current/gpuctl" "$dest/usr/local/bin/gpuctl"
say "/usr/local/bin/gpuctl"
for f in nri-gpu.yaml gpu-device-plugin.yaml; do
	if [ -e "$dest/etc/nri-gpu/$f" ]; then
		say "/etc/nri-gpu/$f is there and is left as it is"
	else
		cp "$top/configs/$f" "$dest/etc/nri-gpu/$f"
		say "/etc/nri-gpu/$f"
	fi
done
for u in nri-gpu gpu-device-plugin; do
	cp "$top/configs/systemd/$u.service" "$dest/etc/systemd/system/$u.service"
	say "/etc/systemd/system/$u.service"
done

if [ -n "$dest" ] || [ ! -d /run/systemd/system ]; then
	echo "systemd does not run here: start both daemons by other means"
	exit 0
fi
systemctl daemon-reload
systemctl enable --quiet nri-gpu gpu-device-plugin
systemctl restart nri-gpu gpu-device-plugin
echo "both daemons run; journalctl -u nri-gpu -u gpu-device-plugin shows what they do"
