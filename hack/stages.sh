#!/usr/bin/env bash
# Runs make targets one after the other and says how long each took:
# stages.sh TARGET... It stops at the first that fails.
set -uo pipefail
table=
for target in "$@"; do
	start=$SECONDS
	"${MAKE:-make}" --no-print-directory "$target"
	status=$?
	table+=$(printf '%-14s %4d s  %s' "$target" $((SECONDS - start)) "$([ $status = 0 ] && echo ok || echo FAILED)")$'\n'
	[ $status = 0 ] || break
done
printf '\n%s' "$table"
exit $status
