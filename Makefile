# nri-gpu. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Everything that is fetched or built for tests lies here, keyed by what it was
# made from; another directory may be shared between checkouts.
export NRI_GPU_CACHE ?= $(CURDIR)/.cache

# go-nvml wraps every call of nvml.h, the deprecated ones too.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
LINT     := $(TOOL) golangci-lint
GOTEST   := $(TOOL) gotestsum --format pkgname-and-test-fails --
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X github.com/nri-gpu/nri-gpu/internal/version.linked=$(VERSION)
STATIC   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)"
FUZZTIME ?= 20s
SAY      := printf '\n\033[1m== %s\033[0m\n'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use it

.PHONY: demo
demo: ## run three pods on a node made for the purpose; KEEP=1 leaves it running
	@$(SAY) "demo: packages"; hack/install-deps.sh demo
	@$(SAY) "demo: containerd and kubelet"; hack/build-tools.sh containerd kubelet
	@$(SAY) "demo: a Debian image"; hack/fetch-image.sh
	@$(SAY) "demo: our programs"; hack/progress.sh $(MAKE) build bin/test/demo
	@$(SAY) "demo"; bin/test/demo

.PHONY: build
build: build-nri-gpu build-device-plugin build-gpu-hook build-gpuctl build-fake build-probe ## build the programs into bin/

.PHONY: build-nri-gpu build-gpu-hook build-gpuctl build-device-plugin build-fake build-probe
build-nri-gpu:
	@$(STATIC) -o bin/nri-gpu ./cmd/nri-gpu
build-gpu-hook:
	@$(STATIC) -o bin/gpu-hook ./cmd/gpu-hook
# These two load NVML, which needs cgo and the machine's own loader.
build-gpuctl:
	@CGO_ENABLED=1 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/gpuctl ./cmd/gpuctl
build-device-plugin:
	@CGO_ENABLED=1 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/gpu-device-plugin ./cmd/device-plugin
build-probe:
	@$(STATIC) -o bin/test/probe ./test/probe
build-fake: bin/test/libnvidia-ml.so.1
bin/test/libnvidia-ml.so.1: $(wildcard test/fakenvml/*.c test/fakenvml/*.h test/fakenvml/build.sh)
	@test/fakenvml/build.sh $@

.PHONY: bin/test/demo
bin/test/demo:
	@$(GO) build -o $@ ./test/demo

.PHONY: install
install: build ## install the daemons on this node (DESTDIR= for a package)
	@hack/install.sh

.PHONY: uninstall
uninstall: ## remove them, and all that they wrote
	@hack/uninstall.sh

##@ Check it

.PHONY: test
test: ## all tests: lint, unit, in-process runtime, fake kubelet, real stack, virtual machine
	@$(SAY) "test: packages"; hack/install-deps.sh test
	@MAKE=$(MAKE) hack/stages.sh lint test-unit test-e2e test-judge test-chaos test-vm

.PHONY: test-unit
test-unit: build ## the quick tests, with the race detector
	@$(SAY) "test: unit"; $(GOTEST) -race -shuffle=on -timeout 10m ./...

.PHONY: test-e2e
test-e2e: build ## the tests on the real stack; needs root
	@$(SAY) "test: the programs of the real stack"
	@hack/build-tools.sh containerd containerd-1.7 kubernetes nvidia-container-toolkit
	@$(SAY) "test: a Debian image, and the driver's user space"; hack/fetch-image.sh; hack/fetch-driver.sh
	@$(SAY) "test: real stack"; $(GOTEST) -tags e2e -count=1 -p 1 -timeout 30m ./test/e2e ./test/demo ./test/peer

.PHONY: test-vm
test-vm: build ## a node in a virtual machine: systemd, cgroup v2, a driver module; needs root
	@$(SAY) "test-vm: packages"; hack/install-deps.sh vm
	@hack/build-tools.sh containerd kubelet
	@CGO_ENABLED=0 $(GO) test -c -tags e2e -trimpath -ldflags "-s -w" -o bin/test/vm-guest.test ./test/vm/guest
	@$(SAY) "test-vm"; $(GOTEST) -tags e2e -count=1 -timeout 30m ./test/vm

# The judges are modules of their own, each with a Kubernetes of its own.
JUDGES := k137 k134
.PHONY: test-judge
test-judge: build-device-plugin ## the device plugin against the kubelet's own device manager, of two versions
	@for j in $(JUDGES); do $(SAY) "test: judge $$j"; \
		hack/progress.sh env CGO_ENABLED=0 $(GO) -C test/judge/$$j test -trimpath -c -o "$(CURDIR)/bin/test/judge-$$j" . && \
		NRI_GPU_BIN="$(CURDIR)/bin" bin/test/judge-$$j -test.timeout 5m -test.v 2>&1 | grep -E '^( *--- |PASS|FAIL|ok|panic|.*seed|.*allocations| *Error)' || exit 1; done

.PHONY: test-chaos
test-chaos: ## a short chaos
	@$(MAKE) chaos CHAOS="-for 90s -faults 20"

CHAOS ?= -for 10m -containers 500 -faults 100
.PHONY: chaos
chaos: build ## pods with GPUs while the node is killed, stopped, filled and cut short (CHAOS="-for 1m -seed 7")
	@hack/install-deps.sh test
	@hack/build-tools.sh containerd kubernetes; hack/fetch-image.sh
	@$(GO) build -o bin/test/chaos ./test/chaos
	@bin/test/chaos $(CHAOS)

.PHONY: lint
lint: ## golangci-lint, with the import directions
	@$(SAY) "lint"; $(LINT) run --allow-parallel-runners ./...

.PHONY: fmt
fmt: ## format the code
	@$(LINT) fmt ./...

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME each
	@$(GO) list ./... | while read -r pkg; do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; done; done

.PHONY: bench
bench: build ## what an injection adds to a container's creation, beside the peer's; needs root
	@hack/install-deps.sh test
	@hack/build-tools.sh containerd nvidia-container-toolkit; hack/fetch-image.sh; hack/fetch-driver.sh
	@$(GO) build -o bin/test/bench ./test/bench
	@bin/test/bench $(BENCH)

.PHONY: bench-own
bench-own: ## our own time in a container's creation, and the device plugin's budgets
	@$(GO) test -run '^$$' -bench Decide -benchtime 2000x ./pkg/inject
	@$(GO) test -run '^$$' -bench Budget -benchtime 20x ./cmd/device-plugin

.PHONY: golden
golden: ## rewrite the golden files; read the diff
	@NRI_GPU_UPDATE_GOLDEN=1 $(GO) test ./internal/specgen ./internal/features ./pkg/inject ./cmd/gpuctl
	@NRI_GPU_UPDATE_GOLDEN=1 $(GO) test -tags e2e -count=1 ./test/e2e

.PHONY: clean
clean: ## remove what was built; the cache stays
	@rm -rf bin

.PHONY: clean-cache
clean-cache: ## remove what was fetched and built for tests
	@rm -rf "$(NRI_GPU_CACHE)"
