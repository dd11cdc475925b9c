# Shortcuts. go run and go test need none of them.
.PHONY: all test race simulate soak optimized release generate mutants fuzz upgrade demo bench-peers profile

all: test

test:
	go test ./...

race:
	go test -race -short ./...

# Runs whole nodes through a thousand faults of a new seed in simulated time, until one run finds something.
simulate:
	while RINGLOG_SIM_CYCLES=1000 RINGLOG_SIM_SEED=$$(date +%s%N) go test ./raftnode -count=1 -run '^TestSimulation$$'; do :; done

# Injects faults that are drawn from a seed into a loaded cluster of real processes, and checks every promise.
# If root runs it, each voter has a network namespace and a file system of its own. The figures go into
# docs/reliability.md. FLAGS are further flags of TestSoak.
MINUTES ?= 10
VOTERS ?= 3
SEED ?= 0
soak:
	go test ./integration -count=1 -v -timeout 0 -run '^TestSoak$$' -soak $(MINUTES)m -soak.voters $(VOTERS) \
		-soak.seed $(SEED) -soak.clocks -soak.results soak-results.ndjson $(FLAGS)

demo:
	go run ./cmd/ringlog demo

# The binary for measurements and production: optimized by a profile of nodes under load. With a profile every
# package is compiled once more, so that go run, go build and go test do not use it.
optimized:
	go build -trimpath -pgo=cmd/ringlog/nodes.pgo -o bin/ringlog ./cmd/ringlog

# All that a release has, in dist: archives for Linux and macOS, deb, rpm, the image for containers, the wheel, an SBOM and
# checksums. From the same commit and the same Go it is the same, byte for byte.
VERSION ?= 0.1.0
release:
	cmd/ringlog/packaging/release $(VERSION) dist

# Needs protoc on the PATH; the plugins are pinned in go.mod. Without protoc, go generate ./event/... writes
# what comes from the catalogue.
generate:
	go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	go generate ./...

# Applies each planted breakage to a copy of the tree and requires that its test fails.
mutants:
	./integration/mutants/run

# Feeds each decoder of bytes from outside with inputs that are made up, for FUZZTIME each (a minute).
fuzz:
	.ci/fuzz ./...

# Upgrades a loaded cluster from an earlier revision to the present build, one voter after the other.
FROM ?= HEAD~1
upgrade:
	old=$$(mktemp -d) && git worktree add --detach $$old/tree $(FROM) && (cd $$old/tree && go build -o ../ringlog ./cmd/ringlog) && \
		go test ./integration -count=1 -v -run '^TestUpgradeByRollingRestart$$' -upgrade.from $$old/ringlog; \
		status=$$?; git worktree remove --force $$old/tree; rm -rf $$old; exit $$status

# Compares ringlog with JetStream, etcd and Redis in three quarters of an hour; see integration/bench/README.md.
bench-peers:
	cd integration/bench && go run . $(BENCH_FLAGS)

# Records the profile that make release uses, in two minutes.
profile:
	./integration/profile
