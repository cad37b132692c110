# make demo and make test are all that a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
GO ?= go
BIN := $(CURDIR)/bin
VERSION ?= v1.36.3+knarr0
EMBED := internal/cri/embedded
# The bundled kubectl says the version of the Kubernetes that it is from, as upstream's build has it.
LDFLAGS := -s -w -X github.com/knarr-project/knarr/internal/version.Knarr=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36
# The same flags in every step: what one has compiled, the next one finds in the cache.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

.PHONY: help build runtime demo test lint unit e2e chaos bench compare plots compare-api interchange integration conformance kubectl-suite operators clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

build: runtime ## bin/knarr, with the container runtime inside
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/knarr ./cmd/knarr
	@ls -lh $(BIN)/knarr | awk '{print "bin/knarr: " $$5}'

runtime: $(EMBED)/.built ## containerd, its shim, runc, the CNI plugin and pause, packed for embedding
RUNTIME_SOURCES := $(shell find runtime -type f -not -name '*_test.go' 2>/dev/null)
$(EMBED)/.built: $(RUNTIME_SOURCES)
	./hack/prerequisites.sh build
	CGO_ENABLED=1 runtime/build.sh $(CURDIR)/.cache/runtime $(CURDIR)/$(EMBED)
	@touch $@

demo: build ## a cluster with the sample application; says how to go on
	./hack/demo.sh

test: ## everything that must pass; what CI runs
	./hack/test.sh

lint: ## format, vet, static checks
	./hack/lint.sh

unit: ## unit tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -vet=off -timeout 25m ./internal/... ./cmd/... ./test/arch/... ./test/docs/... ./hack/cast ./examples/...
	cd runtime && CGO_ENABLED=1 $(GO) test -tags inprocess ./shim github.com/containerd/go-runc
	cd test/compare && $(GO) test . ./apidiff ./report

e2e: build ## real clusters, real containers
	CGO_ENABLED=0 $(GO) test -count=1 -timeout 30m -p 1 ./test/e2e/... ./test/chaos/...

chaos: build ## thousands of histories against killed, restarted and compacted servers: HISTORIES=n SEED=n
	KNARR_CHAOS_HISTORIES=$(or $(HISTORIES),2000) KNARR_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 0 -v -run Histories ./test/chaos/

bench: build ## knarr's side of the table of budgets
	./test/compare/run.sh --only knarr

compare: build ## the same load against upstream and knarr in turn
	./test/compare/run.sh

plots: ## the table and plots of docs/internals/performance.md, from measurements/last.json beside it
	cd test/compare && $(GO) run ./plots $(CURDIR)/docs/internals

compare-api: build ## the same requests to upstream's API server and ours: N=number SEED=number; prints how answers differ
	./test/compare/apidiff/run.sh --n $(or $(N),20000) --seed $(or $(SEED),1)

interchange: build ## parts of upstream's Kubernetes in ours and ours in upstream's: LAYOUTS=names; prints what held
	./test/compare/run.sh --interchange --layouts '$(LAYOUTS)'

integration: build ## upstream's integration tests of custom resources, of PACKAGE=name or of those that hold (PACKAGE=all), with our server in the place of theirs: RUN=regexp
	./test/integration/$(if $(PACKAGE),kube.sh $(PACKAGE),run.sh) $(if $(RUN),-run '$(RUN)')

conformance: build ## the official suite: FOCUS=regexp SKIP=regexp PROCS=n
	./test/conformance/run.sh

kubectl-suite: build ## kubectl's own test suite against upstream and knarr: FOCUS=regexp ONLY=knarr|upstream
	./test/kubectl/run.sh

operators: build ## suites of those who write operators, controller-runtime's own first, against our API server: FOCUS=regexp ONLY=upstream
	./test/operators/run.sh

clean: ## forget what was built
	rm -rf $(BIN) .cache $(EMBED)/*.zst $(EMBED)/.built
