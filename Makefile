# `make demo` and `make test` are all that a newcomer needs; `make help` lists the rest.
SHELL := /bin/bash
GO ?= go
BIN := $(CURDIR)/bin
VERSION ?= v1.36.3+knarr0
# What the binary says of its source. A build outside of a checkout is given these three.
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell TZ=UTC0 git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd HEAD 2>/dev/null)
TREE ?= $(shell git rev-parse HEAD >/dev/null 2>&1 && { git diff --quiet HEAD && echo clean || echo dirty; })
EMBED := internal/cri/embedded
OURS := github.com/knarr-project/knarr/internal/version
# The bundled kubectl says the version of the Kubernetes that it is from, as upstream's build has it.
LDFLAGS = -s -w -X $(OURS).release=$(VERSION) -X $(OURS).commit=$(COMMIT) -X $(OURS).date=$(DATE) -X $(OURS).tree=$(TREE) \
	-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36
# The same flags in every step: what one has compiled, the next one finds in the cache.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

.PHONY: help build binary libraries runtime demo test quick docs lint unit e2e chaos soak bench compare compare-scheduler plots decisions compare-api compare-envtest interchange \
	why ui mixin field adopt-kubeadm upgrade-from critest s3 integration conformance kubectl-suite operators release vulncheck clean
# A line of help is `target: ## text`. A group begins with `##@ title`; a target's settings follow it, `#  NAME=value text`.

##@ Start here
help: ## this list
	@awk -f hack/help.awk $(MAKEFILE_LIST)

demo: build ## a cluster with the sample application; says how to go on
	./hack/demo.sh

build: ## bin/knarr, with the container runtime inside
	@./hack/test.sh build

test: ## everything that must pass, with its progress; what CI runs
	@./hack/test.sh

# What the step `build` runs: names of packages are its progress. While the runtime is packed, which takes one processor for
# most of a minute, the other one compiles the libraries.
binary:
	@$(MAKE) -j2 --no-print-directory runtime $(if $(wildcard $(EMBED)/.built),,libraries)
	@echo "progress: compiling knarr"
	@$(GO) build $(if $(STEPS),-v) -ldflags '$(LDFLAGS)' -o $(BIN)/knarr ./cmd/knarr
	@ls -lh $(BIN)/knarr | awk '{print "bin/knarr: " $$5}'

libraries:
	@$(GO) list -deps -f '{{with .Module}}{{if not .Main}}{{$$.ImportPath}}{{end}}{{end}}' ./cmd/knarr | xargs $(GO) build $(if $(STEPS),-v)

runtime: $(EMBED)/.built
RUNTIME_SOURCES := $(shell find runtime -type f -not -name '*_test.go' 2>/dev/null)
$(EMBED)/.built: $(RUNTIME_SOURCES)
	@./hack/prerequisites.sh build
	@echo "progress: compiling containerd, its shim and runc"
	@CGO_ENABLED=1 runtime/build.sh $(CURDIR)/.cache/runtime $(CURDIR)/$(EMBED)
	@touch $@

##@ Inner loop
quick: ## what you have changed since main, in two minutes: says what it leaves out
	@./hack/test.sh quick

docs: ## the generated pages of docs/reference, from the commands' own help
	@$(GO) generate ./internal/cli

lint: ## format, vet, static checks, tidy modules, shell syntax
	@./hack/test.sh lint

unit: ## unit tests with the race detector
	@./hack/test.sh unit

e2e: ## real clusters with real containers on this machine; as root
	@./hack/test.sh build e2e

##@ Long judges, by what they compare
conformance: build ## the official suite on a cluster of two nodes; half an hour
#  FOCUS=regexp SKIP=regexp  tests whose names match, or do not
#  LABELS=filter             another part of upstream's suite, such as 'sig-node && !Conformance'
#  LIST='node storage'       the tests in these lists of test/conformance; all must pass
#  PROCS=8                   how many tests at a time
#  SERVERS=3 KILLS=1         with three servers; one after the other is killed every two minutes
	./test/conformance/run.sh $(if $(LIST),--list $(LIST:%=test/conformance/%.txt))

s3: ## snapshots in a real S3 server, which it builds; two minutes at first
	KNARR_S3=1 $(GO) test -run S3 ./internal/snapshots ./internal/cli

adopt-kubeadm: build ## a control plane that kubeadm made, taken over and given back; some minutes
	./test/adopt/run.sh

upgrade-from: build ## a cluster of an older build, upgraded to this one and taken back; some minutes
#  COMMIT=hash  of which commit; the default is a week old
	./test/upgrade/run.sh $(COMMIT)

critest: build ## the validation suite of container runtimes, against the included one; four minutes
#  FOCUS=regexp SKIP=regexp  tests whose names match, or do not
#  PARALLEL=4                how many tests at a time
	./test/critest/run.sh

node-suite: build ## upstream's node suite, with our node agent in place of the kubelet
#  FOCUS=regexp SKIP=regexp  tests whose names match, or do not
#  LABELS=filter             the default is 'NodeConformance && !Serial'
#  PROCS=4                   how many tests at a time
	./test/conformance/node.sh

chaos: build ## servers that fail under load, against a model; or with ROUNDS, a node killed under pods
#  HISTORIES=2000  how many histories of a server to make
#  SERVERS=3       histories of a cluster of so many servers, 3 to 9
#  ROUNDS=1000     instead of histories, how many faults of a node under pod churn
#  BUGS=1          instead, which seeded bugs the checks find: all, or names with commas between
#  SEED=n          the same choices as in another run
#  FAULTS=cut,kill with SERVERS: only these kinds of faults
#  LENGTH=7s       with SERVERS: the mean time of a fault
ifdef BUGS
	KNARR_CHAOS_BUGS=$(BUGS) KNARR_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 12h -v -run SeededBugs ./test/chaos/
else ifdef ROUNDS
	KNARR_NODE_CHAOS_ROUNDS=$(ROUNDS) KNARR_NODE_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 12h -v -run NodeChaos ./test/e2e/
else ifdef SERVERS
	KNARR_CHAOS_SERVERS=$(SERVERS) KNARR_CHAOS_FAULTS=$(FAULTS) KNARR_CHAOS_LENGTH=$(LENGTH) KNARR_CHAOS_HISTORIES=$(or $(HISTORIES),2000) KNARR_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 24h -v -run ServersHistories ./test/chaos/
else
	KNARR_CHAOS_HISTORIES=$(or $(HISTORIES),2000) KNARR_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 12h -v -run HistoriesAre ./test/chaos/
endif

soak: build ## three servers under churn for hours, one killed now and then: nothing may grow
#  HOURS=8  how long; 0.2 for a trial
	./test/soak/run.sh $(or $(HOURS),8)

bench: build ## the table of budgets, knarr's side
	./test/compare/run.sh --only knarr

compare: build ## the same load against upstream and knarr in turn; an hour
	./test/compare/run.sh

compare-scheduler: build ## the workloads of upstream's scheduler_perf on upstream and knarr; half an hour
#  WORKLOADS=names    only these, with commas between them
#  NODES=100,1000     instead, plain pods on so many nodes
#  SCALE=0.2          part of the usual size
#  ONLY=knarr         one side
	./test/compare/run.sh --scheduler --workloads '$(WORKLOADS)' --nodes '$(NODES)' --scale $(or $(SCALE),1) $(if $(ONLY),--only $(ONLY))

plots: ## the table and plots of docs/internals/performance.md, from measurements/last.json beside it
	cd test/compare && $(GO) run ./plots $(CURDIR)/docs/internals

compare-api: build ## the same requests to upstream's API server and ours: how answers differ
#  N=20000  how many
#  SEED=1   the same requests as in another run
	./test/compare/apidiff/run.sh --n $(or $(N),20000) --seed $(or $(SEED),1)

decisions: ## the same clusters and pods to upstream's scheduler and ours: how decisions differ
#  N=10000  how many
#  SEED=1   the same cases as in another run
	cd test/scheduler && $(GO) test -count=1 -timeout 4h -v -run Decide . -args -n $(or $(N),10000) -seed $(or $(SEED),1)

compare-envtest: ## knarrtest/envtest beside controller-runtime's envtest: start, memory, a suite's time
#  TESTS=30  tests of the suite
	./test/envtest/run.sh $(if $(TESTS),--tests $(TESTS))

interchange: build ## parts of upstream's Kubernetes in ours, and ours in upstream's
#  LAYOUTS=names  only these, with commas between them
	./test/compare/run.sh --interchange --layouts '$(LAYOUTS)'

integration: build ## upstream's integration tests against our API server
#  PACKAGE=name  of this package instead of custom resources; `all`: all that hold
#  RUN=regexp    tests whose names match
	./test/integration/$(if $(PACKAGE),kube.sh $(PACKAGE),run.sh) $(if $(RUN),-run '$(RUN)')

kubectl-suite: build ## kubectl's own test suite against upstream and knarr
#  FOCUS=regexp          functions whose names match
#  ONLY=knarr|upstream   one side alone
	./test/kubectl/run.sh

operators: build ## controller-runtime's own suite and the Gateway API's cases against us
#  FOCUS=regexp    suites whose names match
#  ONLY=upstream   upstream's API server instead
#  ONLY=knarrtest  controller-runtime's suites with knarrtest/envtest: nothing beside the tests' own process
	./test/operators/run.sh

why: ## broken situations with known causes: what knarr why and kubectl describe say; two minutes
	$(GO) test -count=1 -v -run TestRootCausesAreNamed ./test/why -args -table $(CURDIR)/docs/insight/why-situations.md

ui: build ## the page in a real browser, Debian's Chromium, with real containers, and by axe; two minutes
#  IMAGES=1     writes its pictures to docs/images
#  PODS=10000   instead, measures it with so many pods on hollow nodes
	./hack/prerequisites.sh ui
	npm ci --prefix test/ui/axe --ignore-scripts --no-audit --no-fund
	cd test/ui && $(if $(IMAGES),KNARR_UI_IMAGES=$(CURDIR)/docs/images) $(if $(PODS),KNARR_UI_MEASURE=$(PODS)) $(GO) test -count=1 -v $(if $(PODS),-run Measure) .

mixin: build ## the queries of kubernetes-mixin against a cluster, by Prometheus' engine; two minutes
	cd test/mixin && $(GO) test -count=1 -v .

field: build ## PostgreSQL by CloudNativePG, and MariaDB, on four nodes: a node dies, volumes grow; as root
#  ONLY=postgresql|mariadb  one database alone
#  KEEP=1                   leaves the cluster running until Ctrl-C
	./test/field/run.sh

##@ Release
release: ## archives, Debian packages, checksums and a bill of materials, in dist
#  VERSION=v1.36.3+knarr0  how the release is called
#  ARCHES='amd64 arm64'    for which machines
	./hack/prerequisites.sh release
	VERSION='$(VERSION)' ./hack/release.sh dist

vulncheck: ## known vulnerabilities in what the binary calls
#  GOVULNDB=URL  a copy of Go's vulnerability database
	./hack/vulncheck.sh

clean: ## forget what was built
	rm -rf $(BIN) dist .cache $(EMBED)/*.zst $(EMBED)/.built
