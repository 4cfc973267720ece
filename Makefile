# What a developer does here. Each target is a few commands; what takes thought is
# in the Go programs that they run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go
# How long each fuzz target runs.
FUZZTIME ?= 10s
# The overlay for deploy and undeploy, and further flags of hack/deploy such as
# --image=dormouse-operator=registry.example/dormouse-operator:1.
OVERLAY ?= config/default
DEPLOY_FLAGS ?=
# Where generate puts files, which is below another directory for verify.
OUT ?= .
# How long a chaos run is, and what chance goes by in it: 0 is a random seed.
# CHAOS_FLAGS may be --faults=KIND,KIND.
DURATION ?= 10m
SEED ?= 0
CHAOS_FLAGS ?=
# The commit from which make upgrade upgrades.
BEFORE ?= HEAD~1
# Handovers of make handover.
RUNS ?= 200
# Sleeps of make worlds.
SLEEPS ?= 10
# Flags for bench-report, bench-scale and bench-proxy.
BENCH_FLAGS ?=
# What chance goes by in make sim. SIM_FLAGS may be -plot=FILE.
SEEDS ?= 101,202,303
SIM_FLAGS ?=
# Flags for every go test. The linter vets.
TEST_FLAGS ?= -vet=off

# Under sudo the checkout is somebody else's, and git refuses to tell its version.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

DEVCLUSTER := $(GO) run ./internal/dev/devcluster/cmd/devcluster
CONTROLLER_GEN := bin/tools/controller-gen
GOLANGCI_LINT := bin/tools/golangci-lint
PROTOGEN := bin/tools/protogen
MODULE := dormouse.dev/dormouse
PROTO := sidecar/internal/sdk/proto
# The programs that have rights in the cluster.
PROGRAMS := operator resolver

# Packages whose tests need an API server, a cluster, or nothing. Those that check
# manifests do one thing after the other, for minutes under the race detector. Those apart
# run by themselves.
is_api := /test/api(/|$$)
is_manifests := /test/api/manifests$$
is_e2e := /test/e2e(/|$$)
is_apart := /test/e2e/(chaos|upgrade)$$
# Those that take longest are started first, so that none runs alone at the end.
is_long := /resolver/internal/dataplane$$|/test/api/(elasticservice|gameserver)$$
packages = $$($(GO) list ./... | grep -E $(1) | awk '$$0 ~ "$(is_long)" { print; next } { rest = rest $$0 "\n" } END { printf "%s", rest }')

# $(call need_root,WHAT) ends with one message where a cluster can't be had.
need_root = @if [ "$$(uname -s)" != Linux ]; then echo "make $@ needs Linux$(1); this is $$(uname -s). A virtual machine with Debian will do." >&2; exit 1; \
	elif [ "$$(id -u)" != 0 ]; then echo "make $@ needs root, to make network namespaces and containers$(1): sudo make $@" >&2; exit 1; fi

# $(call failures,LOG) repeats at the end what failed: the programs' logs before it
# are long.
failures = { grep -E '^ *--- FAIL|^ +[a-z0-9_]+_test\.go:[0-9]+: |^(FAIL|panic:)' $(1) | cut -c1-400 | sed '1s/^/what failed:\n/'; exit 1; }

##@ Try it

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Play one player against a sleeping game and print what happens when
	$(if $(KUBECONFIG),,$(call need_root, or KUBECONFIG and IMAGE_PREFIX for a cluster of yours))
	$(if $(KUBECONFIG),,@$(DEVCLUSTER) install)
	@$(GO) run ./hack/demo

.PHONY: up
up: ## Start a local Kubernetes with Dormouse in it and leave it running
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./hack/up

.PHONY: down
down: ## Remove the local Kubernetes and every trace of it
	$(call need_root)
	@$(DEVCLUSTER) down

##@ Test

.PHONY: test
test: test-unit test-api test-e2e test-chaos ## Run all tests

.PHONY: test-unit
test-unit: race ## Run the tests that need nothing but Go
	$(GO) test -race $(TEST_FLAGS) $(call packages,-v '$(is_api)|$(is_e2e)')
	$(GO) test $(TEST_FLAGS) -run='^TestAClientWaitsOnASmallStack$$' ./resolver/internal/dataplane

.PHONY: test-api
test-api: race ## Run the tests against a real API server, and a real service of buckets
	assets="$$($(GO) run ./hack/testassets)"; \
	env $$assets $(GO) test -count=1 -race $(TEST_FLAGS) $(call packages,'$(is_api)' | grep -Ev '$(is_manifests)'); \
	env $$assets $(GO) test -count=1 $(TEST_FLAGS) $(call packages,'$(is_manifests)'); \
	env $$assets $(GO) test -count=1 -race $(TEST_FLAGS) -run='^TestBucket' ./sidecar/internal/backup

.PHONY: test-e2e
test-e2e: ## Run the tests against the local Kubernetes
	$(call need_root)
	@$(DEVCLUSTER) install
	@mkdir -p bin
	$(GO) test -count=1 -p=1 -parallel=4 -timeout=40m $(TEST_FLAGS) $(call packages,'$(is_e2e)' | grep -Ev '$(is_apart)') 2>&1 | tee bin/test-e2e.log || $(call failures,bin/test-e2e.log)

.PHONY: test-chaos
test-chaos: ## Play for three minutes while things break
	$(call need_root)
	@$(DEVCLUSTER) install
	$(GO) test -count=1 -timeout=20m $(TEST_FLAGS) ./test/e2e/chaos

.PHONY: handover
handover: ## Play over UDP while RUNS services change hands, three at once
	$(call need_root)
	@$(DEVCLUSTER) install
	$(GO) test -count=1 -timeout=0 -parallel=3 $(TEST_FLAGS) ./test/e2e/handover -v -args -runs=$(RUNS)

.PHONY: worlds
worlds: ## Play in a Minecraft world that sleeps SLEEPS times, is updated, and crashes
	$(call need_root)
	@$(DEVCLUSTER) install
	$(GO) test -count=1 -timeout=0 $(TEST_FLAGS) -run='^TestAWorldOutlastsSleepUpdateAndCrash$$' ./test/e2e/games -v -args -sleeps=$(SLEEPS)

# The other commit's source is unpacked where nothing of this one's is built.
.PHONY: upgrade
upgrade: ## Play while Dormouse is upgraded from BEFORE, a commit, and rolled back
	$(call need_root)
	@$(DEVCLUSTER) install
	@rm -rf bin/before && mkdir -p bin/before && git archive $(BEFORE) | tar -x -C bin/before
	$(GO) test -count=1 -timeout=40m $(TEST_FLAGS) ./test/e2e/upgrade -v -args -before=$(CURDIR)/bin/before

.PHONY: chaos
chaos: ## Play for DURATION while things break by SEED, and write bin/bench/chaos.json
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./test/chaos/cmd/chaos --duration=$(DURATION) --seed=$(SEED) $(CHAOS_FLAGS)

.PHONY: bench
bench: bench-wake bench-files bench-restart bench-abuse bench-report bench-scale bench-proxy bench-flood ## Run all benchmarks

.PHONY: bench-wake
bench-wake: ## Measure how long a wake takes, and write bin/bench/wake.json
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./test/bench wake

# Each login waits until the pod of the one before is gone.
.PHONY: bench-files
bench-files: ## Measure SFTP to a sleeping server's disk, and write bin/bench/files.json
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./test/bench -runs=10 files

.PHONY: bench-restart
bench-restart: ## Measure how soon 2,000 sleeping services know a new resolver pod
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./test/bench restart

# It needs no cluster. BENCH_FLAGS may be -sidecars=1000 for a small machine.
.PHONY: bench-report
bench-report: ## Measure what 10,000 sidecars' reports cost the operator
	@$(GO) build -o bin/bench-report ./test/bench/report && bin/bench-report $(BENCH_FLAGS)

# It needs no cluster, but root or a kernel that lets users have network namespaces.
# BENCH_FLAGS may be "-servers=500 -services=500 -phases=up,hold,down" for a look at a change.
.PHONY: bench-scale
bench-scale: ## Measure what 2,000 Servers and 2,000 services of each kind cost
	@$(GO) build -o bin/bench-scale ./test/bench/scale && bin/bench-scale $(BENCH_FLAGS)

# It needs no cluster. Root gets HAProxy and nginx from Debian, and a network
# namespace; who isn't root must have them. BENCH_FLAGS may be
# "-measures=udp,ping -rounds=1" for a look at a change, and -before=PROGRAM for another
# version of bin/bench-dataplane beside it.
.PHONY: bench-autoscalers
bench-autoscalers: ## Measure what 500 GameAutoscalers cost one operator
	@env $$($(GO) run ./hack/testassets) $(GO) test -vet=off -run '^$$' -bench FiveHundred -benchtime 1x -timeout 10m ./operator/internal/test/api/gameautoscaler

.PHONY: bench-allocate
bench-allocate: ## Measure matchmakers in a closed loop over 500 Servers
	env $$($(GO) run ./hack/testassets) $(GO) test -count=1 $(TEST_FLAGS) -run='^$$' -bench=Allocate -benchtime=100x ./operator/internal/test/api/allocation

.PHONY: bench-proxy
bench-proxy: ## Measure relaying beside HAProxy and nginx, and write bin/bench/proxy.json
	@$(GO) build -o bin/bench-dataplane ./resolver/internal/dataplane/benchhost
	@$(GO) build -o bin/bench-proxy ./test/bench/proxy && bin/bench-proxy $(BENCH_FLAGS)

# It needs no cluster, and a quiet machine.
.PHONY: bench-flood
bench-flood: ## Measure what players notice of attacks on another service
	$(GO) test -run='^$$' -bench=OthersUnderAttack -benchtime=1x $(TEST_FLAGS) ./resolver/internal/dataplane

.PHONY: bench-abuse
bench-abuse: ## Attack the wake endpoint with 200,000 bad calls
	$(call need_root)
	@$(DEVCLUSTER) install
	@$(GO) run ./test/bench abuse

# It needs no cluster.
.PHONY: sim
sim: ## Replay weeks of players, by SEEDS, against each way to scale, and write bin/sim
	@$(GO) run ./operator/internal/gameautoscaler/sim/cmd/sim -seeds=$(SEEDS) $(SIM_FLAGS)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' api hack internal operator resolver sidecar test | \
	while IFS=: read -r file function; do \
		echo "fuzz $${function#func } in $$(dirname "$$file")"; \
		$(GO) test -run='^$$' -fuzz="^$${function#func }\$$" -fuzztime=$(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
	done

# The race detector needs a C compiler.
.PHONY: race
race:
	@if ! command -v "$$($(GO) env CC)" >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing a C compiler, which the race detector needs"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends gcc libc6-dev >/dev/null; \
		else echo "the race detector needs a C compiler: install gcc and libc6-dev" >&2; exit 1; fi; fi

##@ Develop

.PHONY: generate
generate: $(CONTROLLER_GEN) $(PROTOGEN) ## Write what is generated from the source
	@mkdir -p $(OUT)/config/crd/bases $(OUT)/docs $(OUT)/api/v1alpha1
	$(CONTROLLER_GEN) object paths=./api/... output:object:dir=$(OUT)/api/v1alpha1
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir=$(OUT)/config/crd/bases
	$(GO) run ./hack/crdtrim --crds=$(OUT)/config/crd/bases
	@for program in $(PROGRAMS); do \
		mkdir -p $(OUT)/config/rbac/$$program; \
		echo $(CONTROLLER_GEN) rbac:roleName=dormouse-$$program paths=./$$program/...; \
		$(CONTROLLER_GEN) rbac:roleName=dormouse-$$program paths=./$$program/... output:rbac:dir=$(OUT)/config/rbac/$$program; \
	done
	$(PROTOGEN) --proto=$(PROTO) --output=$(OUT) \
		bin/tools/protoc-gen-go:module=$(MODULE) \
		bin/tools/protoc-gen-go-grpc:module=$(MODULE) \
		bin/tools/protoc-gen-grpc-gateway:module=$(MODULE),grpc_api_configuration=$(PROTO)/http.yaml
	$(GO) run ./hack/apidocs --crds=$(OUT)/config/crd/bases --output=$(OUT)/docs/api.md
	$(GO) run ./hack/metricsdocs --output=$(OUT)/docs/metrics.md

# A cache of its own: a shared one answers with another checkout's paths, which
# the exclusions don't match.
.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the source's style, walls and words
	GOLANGCI_LINT_CACHE=$(CURDIR)/bin/lint-cache $(GOLANGCI_LINT) run ./...
	$(GO) run ./hack/vocabulary

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the source
	$(GOLANGCI_LINT) fmt ./...

.PHONY: verify
verify: verify-generated verify-kustomize lint ## Check all that needs no test
	$(GO) vet ./...

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN) $(PROTOGEN)
	@rm -rf bin/_verify && $(MAKE) --no-print-directory generate OUT=bin/_verify >/dev/null
	@cd bin/_verify && find . -type f | while read -r file; do \
		diff -u "../../$$file" "$$file" || { echo "$$file is out of date: run make generate" >&2; exit 1; }; done

.PHONY: verify-kustomize
verify-kustomize:
	@$(GO) build -o bin/tools/deploy ./hack/deploy
	@for overlay in $$(grep -l 'kind: Kustomization' config/*/kustomization.yaml); do \
		bin/tools/deploy --overlay="$$(dirname "$$overlay")" print >/dev/null; done

# Its database is on the internet.
.PHONY: vulncheck
vulncheck: ## Look for known holes in what we depend on
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...

##@ Deploy

.PHONY: images
images: ## Build the programs' images into bin/images, without Docker
	@$(GO) run ./hack/images

.PHONY: deploy
deploy: ## Bring OVERLAY into the cluster of your kubeconfig
	@$(GO) run ./hack/deploy --overlay=$(OVERLAY) $(DEPLOY_FLAGS) apply

.PHONY: undeploy
undeploy: ## Remove OVERLAY and every object of its kinds, after asking; DEPLOY_FLAGS=--yes doesn't ask
	@$(GO) run ./hack/deploy --overlay=$(OVERLAY) $(DEPLOY_FLAGS) delete

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

$(CONTROLLER_GEN): hack/tools/go.sum
	@echo "building $@"
	@$(GO) -C hack/tools build -o ../../$@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(PROTOGEN): hack/protogen/go.sum hack/protogen/main.go
	@echo "building $@ and protoc's plugins"
	@$(GO) -C hack/protogen build -o ../../bin/tools/ . tool

$(GOLANGCI_LINT): hack/tools/go.sum
	@echo "building $@ (the first time takes minutes)"
	@$(GO) -C hack/tools build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
