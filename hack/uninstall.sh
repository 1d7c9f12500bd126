#!/bin/sh
# Removes what install.sh put on this node, or below DESTDIR, and what the
# daemons wrote. Containers that run keep their GPUs; none gets one any more.
set -eu

dest=${DESTDIR:-}
if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
	systemctl disable --now --quiet gpu-device-plugin nri-gpu 2>/dev/null || echo "the daemons were not enabled"
fi
for f in \
	/etc/systemd/system/nri-gpu.service /etc/systemd/system/gpu-device-plugin.service \
	/usr/local/bin/gpuctl /usr/local/lib/nri-gpu /etc/nri-gpu \
	/etc/kubernetes/node-feature-discovery/features.d/nri-gpu \
	/var/run/cdi/nri-gpu.io-gpu.json /var/run/nri-gpu /var/lib/nri-gpu; do
	if [ -e "$dest$f" ] || [ -L "$dest$f" ]; then
		rm -rf -- "$dest$f"
		echo "  removed $f"
	fi
done
# Directories that install.sh may have made, when they are empty.
for d in /usr/local/lib /usr/local/bin /usr/local /usr /etc/systemd/system /etc/systemd /etc /var/run/cdi /var/run /var/lib /var; do
	if [ -n "$dest" ]; then rmdir "$dest$d" 2>/dev/null || true; fi
done
if [ -z "$dest" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
