#!/usr/bin/env bash
# Builds the programs that the real stack consists of, from the modules pinned
# in test/e2e/tools: build-tools.sh containerd|containerd-1.7|kubelet|kubernetes|
# cri-tools|nvidia-container-toolkit...; build-tools.sh --print-dir prints where they lie.
#
# A program is built once for a state of its module's go.sum. Building
# Kubernetes takes minutes.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${NRI_GPU_CACHE:-$root/.cache}/tools
bin=$cache/bin
mkdir -p "$bin"

# build NAME MODULE FLAGS PACKAGE...; the links go to $sub below the directory.
sub=
build() {
	local name=$1 module=$root/test/e2e/tools/$2 flags=$3
	shift 3
	local key out
	key=$(cat "$module/go.mod" "$module/go.sum" | cat - <(echo "$flags $*") | sha256sum | cut -c1-16)
	out=$cache/$name-$key
	if [ ! -e "$out/.done" ]; then
		echo "building $name: $*"
		mkdir -p "$out"
		(cd "$module" && CGO_ENABLED=${CGO:-0} "$root/hack/progress.sh" go build -mod=readonly -trimpath -ldflags "$flags" -o "$out/" "$@")
		touch "$out/.done"
	fi
	mkdir -p "$bin/$sub"
	for p in "$@"; do ln -sfn "$out/${p##*/}" "$bin/$sub${p##*/}"; done
}

kubernetes="-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2"
for want in "$@"; do
	case $want in
	--print-dir) echo "$bin" ;;
	containerd)
		c=github.com/containerd/containerd/v2/cmd
		build containerd containerd "-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2" $c/containerd $c/containerd-shim-runc-v2 $c/ctr
		;;
	containerd-1.7)
		c=github.com/containerd/containerd/cmd
		sub=containerd-1.7/ build containerd-1.7 containerd17 "-s -w -X github.com/containerd/containerd/version.Version=v1.7.35" $c/containerd $c/containerd-shim-runc-v2 $c/ctr
		;;
	kubelet) build kubelet kubernetes "$kubernetes" k8s.io/kubernetes/cmd/kubelet ;;
	kubernetes)
		build kubelet kubernetes "$kubernetes" k8s.io/kubernetes/cmd/kubelet
		k=k8s.io/kubernetes/cmd
		build kubernetes kubernetes "$kubernetes" $k/kube-apiserver $k/kube-scheduler $k/kube-controller-manager
		;;
	cri-tools) build cri-tools cri-tools "-s -w" sigs.k8s.io/cri-tools/cmd/crictl ;;
	nvidia-container-toolkit)
		n=github.com/NVIDIA/nvidia-container-toolkit/cmd
		CGO=1 build nvidia-container-toolkit nvidia-container-toolkit "-s -w" $n/nvidia-ctk $n/nvidia-cdi-hook
		;;
	*)
		echo "unknown program $want" >&2
		exit 2
		;;
	esac
done
