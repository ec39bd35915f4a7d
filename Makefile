# The same few commands for a person and for CI. 'make help' lists them.

GO      ?= go
BIN     := bin/mta
VERSION ?= $(shell .ci/version)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Compiled as it is shipped, except with the race detector: each package is compiled once for all that runs without it.
export CGO_ENABLED = 0
export GOFLAGS += -trimpath

# How long each fuzz target runs in 'make fuzz'.
FUZZTIME ?= 1m

# 'make bench' and 'make measure': how much of the full sizes, and how often each is measured. OUT=FILE
# says where the tables go (bin), FILL=1 puts them into docs/benchmarks.md. BASES="COMMIT ..." are what 'make bench'
# compares with, oldest first (14ba1c1).
SCALE ?= 1
RUNS  ?= 3

# How much of the grid 'make warmup-grid' runs: full, or slice as CI does. MTA_GRID_MODE=ledger, pid, bare-pid or
# onoff runs one mode only, MTA_GRID_SEEDS=3 each cell with three seeds.
GRID ?= full

.PHONY: help version build man packages image image-check chart release demo test unit costs e2e e2e-install torture overload neighbours cluster console pictures warmup-live warmup-days generate check bench measure warmup-grid microbench benchcmp scale soak good-traffic fuzz clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

version: ## the version of what is checked out
	@echo '$(VERSION)'

build: ## the static binary, in bin/mta
	$(GO) build -buildvcs=auto -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/mta

man: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

man: ## manual pages and shell completions, in bin/man
	rm -rf bin/man
	$(GO) run -tags man -ldflags '$(LDFLAGS)' ./cmd/mta man bin/man

packages: ## deb and rpm, for amd64 and arm64, in bin/packages
	GO='$(GO)' contrib/packages/build bin/packages '$(VERSION)'

image: ## the container image for amd64 and arm64, in bin/image; needs buildah and jq
	GO='$(GO)' contrib/image/build bin/image '$(VERSION)'

image-check: image ## the image under crun: read-only root, no capability, an unknown user, TERM under load; as root
	contrib/image/check bin/image/mta.oci.tar

chart: ## the Helm chart: lint, variants against the types of Kubernetes; renders contrib/helm/manifests.yaml
	GO='$(GO)' contrib/helm/check --write

release: ## archives, packages, bills of materials, sums and signatures of the tag, in bin/release; docs/releasing.md
	@GO='$(GO)' .ci/release

demo: build ## the whole relay at work on this machine, in under a minute
	$(BIN) demo

test: ## everything that CI runs: checks, beside the installation; unit tests with -race; real daemons
	@$(MAKE) --no-print-directory -j2 check e2e-install && $(MAKE) --no-print-directory unit e2e

# By default each test binary sleeps for a second at its end, for races still to be told: they are told
# when they happen.
unit: export GORACE = atexit_sleep_ms=0

# Tests often wait, for a disk or a timer, so more run at a time than there are processors. make check vets them.
UNIT := $(GO) test -vet=off -p 4 -parallel 8

# The simulators, what reads the sources, and the tests that .ci/alone names, run without the race detector: it says
# why. So does the count of what a message costs, by itself.
unit: ## unit tests with the race detector, where there is a C compiler
	@race=$$(GO='$(GO)' sh .ci/race) && alone="^($$(grep -v '^#' .ci/alone | paste -sd'|'))$$" && \
	echo "$(GO) test $$race ./..., but e2e" && \
	CGO_ENABLED=$${race:+1} GOFLAGS='$(filter-out -trimpath,$(GOFLAGS))' $(UNIT) $$race -timeout 30m -skip "$$alone|^TestCosts$$" $$($(GO) list ./... | grep -v -e '/e2e$$' -e /simulate$$ -e /lab/overload$$ -e /mta/internal$$) && \
	$(UNIT) ./warmup/simulate ./lab/overload ./internal && \
	$(UNIT) -run "$$alone" $$(grep -rlE --include='*_test.go' "^func ($$(grep -v '^#' .ci/alone | paste -sd'|'))\(" . | xargs -n1 dirname | sort -u) && \
	$(GO) test -vet=off -count=1 -run '^TestCosts$$' -v ./mta/relaytest

costs: ## counts again what a message costs, and writes it to e2e/costs.json; a count that rises needs a reason in the commit
	$(GO) test -count=1 -run '^TestCosts$$' -v ./mta/relaytest -costs.write

e2e: e2e-install ## real daemons and the kill test; installs Debian's packages where it may
	@skipped=$$(mktemp) && echo '$(GO) test ./e2e' && code=0; \
	MTA_E2E_SKIPPED=$$skipped $(GO) test -vet=off -count=1 -timeout 60m -parallel $$((50 * $$(nproc))) ./e2e || code=$$?; \
	cat "$$skipped"; rm -f "$$skipped"; exit $$code

e2e-install:
	@sh e2e/install.sh

torture: ## the kill test at large size, 30 sources, silent hosts and name servers, a clock that jumps, damage in every octet, a full disk
	MTA_TORTURE=60 $(GO) test -count=1 -timeout 30m -run Torture -v ./e2e ./mta
	$(GO) test -count=1 -timeout 60m -run '^TestAnyDamageOfTheDataDirectory$$' -v ./mta -flips 200 -holes 160
	$(GO) test -count=1 -run 'FlipAnywhere|PowerCut|LargeContents|ClockThatWasAhead' -v ./queue -queue.cutseeds 20 -queue.step 1

overload: ## three times of what a slow disk takes by SMTP and by HTTP, and a part of a core, a flash sale, a thousand connections of one tenant, a full disk
	MTA_OVERLOAD=$${MTA_OVERLOAD:-60s} $(GO) test -count=1 -timeout 30m -run '^TestOverload' -v ./e2e

neighbours: ## what one tenant, client, host or stranger costs the others, a table, in six minutes; JSON=FILE has it as JSON
	MTA_NEIGHBOURS=$${MTA_NEIGHBOURS:-8s} MTA_NEIGHBOURS_JSON='$(abspath $(JSON))' $(GO) test -count=1 -timeout 30m -run '^TestNeighbours$$' -v ./e2e

cluster: ## PostgreSQL with a standby and three relays: a limit that they share, and a queue that moves, in a minute
	@sh e2e/install.sh postgresql util-linux
	MTA_CLUSTER=1 $(GO) test -count=1 -timeout 10m -run '^TestAClusterShown$$' -v ./e2e

console: ## each page of the console in Chromium, in each theme, empty, full and without the relay, in five minutes
	MTA_CONSOLE=full $(GO) test -count=1 -timeout 30m -run '^TestConsoleInChromium$$' -v ./e2e

pictures: ## the pictures of the manual, in docs/pictures, from a sample relay at a fixed hour
	$(GO) test -count=1 -run '^TestConsolePictures$$' -v ./e2e -console.pictures "$(CURDIR)/docs/pictures"

warmup-live: ## the warm-up of the real relay, counted at the providers, in six minutes
	MTA_WARMUP=360 $(GO) test -count=1 -timeout 30m -parallel 100 -run 'Live|SimulatorAgrees' -v ./e2e

warmup-days: ## 15 days of the plan "standard" at 100,000 a day, through the relay's own path in virtual time
	MTA_WARMUP_DAYS=15 $(GO) test -count=1 -timeout 60m -run DaysOfWarmUp -v ./mta

generate: ## what is made from the code: the references of settings and of commands in docs/, both openapi.json
	$(GO) run ./mta/config/manual
	$(GO) test ./cmd/mta -count=1 -run TestManualIsGenerated -update-manual
	$(GO) test ./operator/api ./submission/http -count=1 -run TestDocumentIsMadeFromTheCode -update

check: ## gofmt, go.mod, go vet, staticcheck (when it can be had), and a build for FreeBSD
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'gofmt would change:'; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@test -z "$$($(GO) mod tidy -diff 2>/dev/null)" || { echo 'go.mod: run go mod tidy'; exit 1; }
	$(GO) vet ./...
	@sh .ci/staticcheck
	GOOS=freebsd $(GO) build ./...

bench: e2e-install ## the relay beside Postfix and beside earlier commits in the standard scenarios, in 14 minutes
	@GO='$(GO)' SCALE='$(SCALE)' RUNS='$(RUNS)' OUT='$(OUT)' FILL='$(FILL)' BASES='$(BASES)' sh e2e/measure.sh bench '^TestBench'

measure: e2e-install ## the other figures of docs/benchmarks.md, in 18 minutes; the same settings
	@GO='$(GO)' SCALE='$(SCALE)' RUNS='$(RUNS)' OUT='$(OUT)' FILL='$(FILL)' sh e2e/measure.sh measure '^TestMeasure'

warmup-grid: ## caps, demands, lags, nodes and shapes of mail through the warm-up's simulator: half an hour of CPU; GRID=slice: seconds
	MTA_GRID=$(GRID) $(GO) test -count=1 -run Grid -v -timeout 90m ./warmup/simulate

microbench: ## micro-benchmarks of the hot steps, with allocations
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && .ci/benchsteps build . "$$dir" && .ci/benchsteps run "$$dir"

benchcmp: ## the same of BASE (main, or the commit before) and of this checkout, compared
	@.ci/benchcmp $(BASE)

scale: ## ten million queued messages, thousands of connections, 100,000 sites; 12 GB of disk in /tmp
	MTA_SCALE_FULL=1 $(GO) test -count=1 -timeout 30m -run '^TestScale' -v ./e2e

soak: ## the relay under steady load and trouble for MTA_SOAK (1h): nothing may grow
	MTA_SOAK=$${MTA_SOAK:-1h} $(GO) test -count=1 -timeout 0 -run '^TestSoak$$' -v ./e2e

good-traffic: ## good traffic for MTA_GOOD_TRAFFIC (1h): fail2ban's filter finds nobody in the log
	MTA_GOOD_TRAFFIC=$${MTA_GOOD_TRAFFIC:-1h} $(GO) test -count=1 -timeout 0 -run '^TestFail2banFindsNobodyInGoodTraffic$$' -v ./e2e

fuzz: ## every fuzz target for FUZZTIME (1m)
	@sh .ci/fuzz $(FUZZTIME)

clean: ## remove what was built
	rm -rf bin
