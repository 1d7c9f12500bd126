#!/bin/sh
# Builds the fake libnvidia-ml.so.1: build.sh OUTPUT. Types and the list of
# function names come from the nvml.h of the go-nvml module; every name that
# neither nvml.c nor health.c defines becomes a stub that answers NVML_ERROR_NOT_SUPPORTED.
set -eu
out=$1
here=$(cd "$(dirname "$0")" && pwd)
nvml=$(cd "$here" && go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml
mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -ohE 'DECLDIR +nvml[A-Za-z0-9_]+ *\(' "$nvml/nvml.h" | grep -oE 'nvml[A-Za-z0-9_]+' | sort -u >"$work/all"
for part in nvml health call; do
	gcc -c -fPIC -O2 -Wall -Wextra -Werror -I"$nvml" -o "$work/$part.o" "$here/$part.c"
done
nm --defined-only "$work/nvml.o" "$work/health.o" | awk '$2 == "T" {print $3}' | sort >"$work/real"
{
	echo 'int fakenvml_stub(const char *name);'
	comm -23 "$work/all" "$work/real" | sed 's/.*/int &(void); int &(void) { return fakenvml_stub("&"); }/'
} >"$work/stubs.c"
gcc -shared -fPIC -O2 -Wall -Wextra -Werror -Wl,-soname,libnvidia-ml.so.1 -o "$work/lib" \
	"$work/nvml.o" "$work/health.o" "$work/call.o" "$work/stubs.c" "$here/json.c" "$here/model.c" -lpthread
mv "$work/lib" "$out"
