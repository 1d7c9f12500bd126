#!/usr/bin/env bash
# Runs a command, and says every ten seconds that it still does.
set -euo pipefail
start=$SECONDS
"$@" &
pid=$!
trap 'kill $pid 2>/dev/null || true' INT TERM
while kill -0 $pid 2>/dev/null; do
	sleep 0.2
	if ((SECONDS - start >= 10)); then
		start=$SECONDS
		echo "   … still at it, $SECONDS s"
	fi
done
wait $pid
