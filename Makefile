# `make` lists the targets. Everything CI does is one of them (.ci/run).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# All modules of the repository, except the one that only pins tools.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*' -not -path './.*/*'))))
TOOL = go tool -modfile=$(CURDIR)/tools/go.mod

# What to run, and how often: make bench-go BENCH=Mutex COUNT=10, make test TESTFLAGS=-v
TESTFLAGS ?=
TIMEOUT ?= 10m
# Most tests wait for a lease to end, not for a core: three for each of two cores take two thirds of the time.
PARALLEL ?= 6
BENCH ?= .
BENCHTIME ?= 1s
COUNT ?= 6
FUZZTIME ?= 10s
CHAOS ?= -for 30m -acquisitions 1000000
MUTANTS ?=
BENCHFLAGS ?=

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.PHONY: servers
servers: ## install valkey-server, redis-server and chromium where they are missing (Debian, Ubuntu)
	@tools/install-servers

.PHONY: test
test: servers ## all tests of all modules, with the race detector, against real servers
	@for module in $(MODULES); do
		cd "$(CURDIR)/$$module"
		echo "==> in $$module: go test -race -count=1 -p 1 -parallel $(PARALLEL) -timeout $(TIMEOUT) $(TESTFLAGS) ./..."
		go test -race -count=1 -p 1 -parallel $(PARALLEL) -timeout $(TIMEOUT) $(TESTFLAGS) ./...
	done
	cd "$(CURDIR)"
	# The race detector leaves room for a small part of the model's states and of the goroutines: all of them without it.
	echo "==> go test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./model/"
	go test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./model/
	echo "==> go test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) -run '^TestTwentyThousandWaiters$$' ."
	go test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) -run '^TestTwentyThousandWaiters$$' .

.PHONY: lint
lint: ## golangci-lint (.golangci.yml: go vet and staticcheck are in it), gofmt, govulncheck
	@echo "==> gofmt -l ."
	unformatted=$$(gofmt -l .)
	if [ -n "$$unformatted" ]; then
		printf 'not gofmt-ed:\n%s\n' "$$unformatted"
		exit 1
	fi
	for module in $(MODULES); do
		cd "$(CURDIR)/$$module"
		echo "==> in $$module: golangci-lint run ./..."
		$(TOOL) golangci-lint run --allow-parallel-runners ./...
	done
	for module in $(MODULES); do
		cd "$(CURDIR)/$$module"
		echo "==> in $$module: govulncheck ./..."
		if ! out=$$($(TOOL) govulncheck ./... 2>&1); then
			printf '%s\n' "$$out"
			case $$out in
				*'fetching vulnerabilities: '*) echo "govulncheck: NO MODULE CHECKED FROM HERE ON, its database cannot be reached"; break ;;
				*) exit 1 ;;
			esac
		fi
	done

.PHONY: api
api: ## write docs/api.txt, what users may build on, anew: at a release
	@go test -count=1 -run '^TestAPIChangesAreAnnounced$$' ./internal/ledger -update-api
	git diff --stat docs/api.txt

.PHONY: apidiff
apidiff: ## what is new in the API since docs/api.txt; fails on what is gone or changed and is not in CHANGELOG.md
	@go test -count=1 -v -run '^TestAPIChangesAreAnnounced$$' ./internal/ledger

.PHONY: bench-go
bench-go: servers ## the benchmarks, several times each, for benchstat
	@echo "==> go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) ."
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m .

.PHONY: bench
bench: servers ## valkeysync next to other lock libraries; writes docs/benchmarks.md (BENCHFLAGS=-short, BENCHFLAGS='-only 1,4')
	@cd bench
	echo "==> in bench: go run . $(BENCHFLAGS)"
	go run . $(BENCHFLAGS)

.PHONY: bench-smoke
bench-smoke: servers ## every benchmark of every module, once
	@for module in $(MODULES); do
		cd "$(CURDIR)/$$module"
		# Those packages alone that have some: to link the tests of all takes longer than the benchmarks.
		tests=$$(go list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./...)
		for package in $$({ grep -l '^func Benchmark' $$tests || true; } | xargs -r -n 1 dirname | sort -u); do
			echo "==> go test -run '^$$' -bench . -benchtime 1x $$package"
			go test -run '^$$' -bench . -benchtime 1x -timeout $(TIMEOUT) "$$package"
		done
	done

.PHONY: fuzz
fuzz: servers ## every fuzz target for a short time (FUZZTIME=10s)
	@for module in $(MODULES); do
		cd "$(CURDIR)/$$module"
		for package in $$(go list ./...); do
			# The list ends in a line about the package itself.
			for target in $$(go test -list '^Fuzz' "$$package" | sed -n '/^Fuzz/p'); do
				echo "==> go test -run '^$$' -fuzz '^$$target\$$' -fuzztime $(FUZZTIME) $$package"
				go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"
			done
		done
	done

.PHONY: chaos
chaos: servers ## the fault suite, long: CHAOS='-for 30m -acquisitions 1000000 -seed 1'
	@cd chaos
	echo "==> in chaos: go run ./cmd/chaos $(CHAOS)"
	go run ./cmd/chaos $(CHAOS)

.PHONY: mutants
mutants: servers ## break the library on purpose, rule by rule, and tell which check found it (MUTANTS='-for 0': tests alone)
	@cd chaos
	echo "==> in chaos: go run ./cmd/mutants $(MUTANTS)"
	go run ./cmd/mutants $(MUTANTS)

.PHONY: demo
demo: ## see a lock being handed from process to process
	@go run ./cmd/valkeysync demo

.PHONY: ci
ci: ## what CI runs
	@.ci/run
