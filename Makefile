# Everything a fresh Debian 12 machine with Go and root needs: make demo, make test.
export CGO_ENABLED ?= 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
BENCH ?=

.PHONY: help build generate check-generated lint test race fuzz bench demo install clean deps
.DEFAULT_GOAL := build

build: ## the one binary, bin/sslo
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sslo ./cmd/sslo

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

deps: ## install every missing Debian package, those of development included
	scripts/deps.sh generate test bench

generate: ## eBPF objects and generated documents; the only target that needs clang
	scripts/deps.sh generate
	go generate ./...

check-generated: ## fail if a committed generated file is not what generate makes
	scripts/check-generated.sh

lint: ## gofmt, go vet
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt: $$bad"; exit 1; }
	go vet ./...

test: build ## all tests; those that need root are skipped without it
	scripts/deps.sh test
	scripts/test.sh

race: ## the packages without the kernel, under the race detector (needs gcc)
	CGO_ENABLED=1 scripts/test.sh --pure -race

fuzz: ## each fuzz function for FUZZTIME (10s)
	scripts/fuzz.sh

bench: build ## against HAProxy and nginx; BENCH="--quick --only handshake" passes flags
	scripts/deps.sh bench
	go build -o bin/sslo-bench ./test/bench
	bin/sslo-bench --sslo bin/sslo --report docs/performance.md $(BENCH)

demo: build ## a lab, an attack, a download and an upload, a device that dies
	scripts/deps.sh test
	bin/sslo lab demo

install: build ## binary, systemd unit, examples, under DESTDIR
	install -D -m 755 bin/sslo $(DESTDIR)/usr/sbin/sslo
	install -D -m 644 packaging/systemd/sslo.service $(DESTDIR)/lib/systemd/system/sslo.service
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/sslo README.md
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/sslo/examples packaging/examples/*.yml

clean: ## what was built
	rm -rf bin
