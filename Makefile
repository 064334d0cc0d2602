# `make` prints the targets. `make demo` and `make test` install everything that they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
# for a recipe that must not run under `make -n`, as one that names $(MAKE) would
OTHER_MAKE := $(MAKE)
BIN := $(VENV)/bin
ARGS ?=
# tests start hundreds of processes; bytecode files make their imports faster
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs setup classes setup-test demo test check unit bench bench-capture bench-capture-postgres bench-decode bench-loops bench-index soak-index bench-joins bench-aggregates bench-join-latency bench-start bench-freshness bench-tables bench-many-tables bench-verify bench-verify-index bench-gateway bench-dashboard bench-disasters soak clean constraints pictures proto check-proto helm check-chart agent-file images check-images matrix chaos fuzz fuzz-database fuzz-ports audit sbom release support-matrix

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# pip refuses a file whose hash is not in locks/. Isolated builds would fetch their tools without one.
HASHED := -m pip install --quiet --no-build-isolation --require-hashes --requirement

$(BIN)/tailorbird: pyproject.toml $(wildcard locks/*.txt)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tailorbird needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(HASHED) locks/build.txt
	$(BIN)/python $(HASHED) locks/dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

# tools that must not share an environment with what they judge
TOOLS := build/tools
$(TOOLS)/ready: locks/tools.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --only-binary :all: --require-hashes --requirement locks/tools.txt
	@touch $@

setup: $(BIN)/tailorbird ## install the Python environment, the servers of the local stack and the join kernel
	$(BIN)/tailorbird stack fetch
	$(BIN)/python -m joins.kernel.proc_kernel

classes: setup ## archive the join's classes (30 s once); later starts of a join take half the time
	$(BIN)/python -m joins.engine.spark_archive

# the package manager mostly waits for the network
setup-test: setup ## run setup and install what the tests also need: the class archive and a browser
	@tests/install-browser.sh & browser=$$!; \
	$(BIN)/python -m joins.engine.spark_archive && wait $$browser

demo: setup ## run the whole pipeline on live traffic: make demo ARGS="--for 60s --json"
	@$(BIN)/tailorbird demo $(ARGS)

check: $(BIN)/tailorbird ## check format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --sqlite-cache src tests benchmarks
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory check-proto
	@$(MAKE) --no-print-directory check-chart
	$(BIN)/codespell README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs src tests benchmarks
	@$(MAKE) --no-print-directory docs

# without Docker: in plain root file systems, by buildah (docs/install.md)
images: $(BIN)/tailorbird ## build the container images, with Docker, or as root with buildah and mmdebstrap
	@if docker info > /dev/null 2>&1; \
	then for target in capture join index console; do docker build --file docker/Dockerfile --target $$target --tag tailorbird-$$target . || exit 1; done; \
	else $(BIN)/python -m tests.images; fi

check-images: setup agent-file ## build the images with buildah, run the demo's stages in them, and capture with the single file; needs root
	$(BIN)/python -m tests.images
	$(BIN)/python -m pytest -m matrix tests/test_images.py tests/integration/test_images.py tests/integration/test_agent_file.py $(ARGS)

agent-file: $(BIN)/tailorbird $(TOOLS)/ready ## build build/tailorbird: the agent in one file, for hosts without pip
	@rm -rf build/agent && mkdir -p build/agent
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/agent .
	$(BIN)/python -m tests.agent_file $(TOOLS)/bin/uv build/agent/tailorbird-*.whl build/tailorbird $(ARGS)

# Helm is built from its Go module, once per user. `make test` uses a Helm that exists: the build takes two minutes.
HELM_VERSION := v3.22.0
HELM := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tailorbird/helm-$(HELM_VERSION)/helm
BUILD_HELM ?= $(shell command -v go)
helm: ## build Helm from its Go module; needs Go
	@test -x $(HELM) || GOBIN=$(dir $(HELM)) nice go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@echo $(HELM)

check-chart: $(BIN)/tailorbird ## lint the Helm chart, render its examples and compare them with Kubernetes' schemas
	@if [ -x $(HELM) ] || [ -n "$(BUILD_HELM)" ]; \
	then $(MAKE) --no-print-directory helm $(TOOLS)/ready && $(BIN)/python -m tests.chart $(HELM) $(TOOLS)/bin/kubernetes-validate; \
	else echo "check-chart: skipped, since Helm is not built: make helm (needs Go)"; fi

docs: $(BIN)/tailorbird ## build the documentation site into build/site; broken links and anchors are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# the checks use what the tests leave of the processors, since servers and clients often wait for one another
test: setup-test ## run the checks and all tests on real servers, as CI does
	@mkdir -p build; nice -n 10 $(OTHER_MAKE) --no-print-directory check BUILD_HELM= > build/check.log 2>&1 & checks=$$!; \
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m "not matrix and not chaos" $(ARGS); \
	tests=$$?; wait $$checks || { cat build/check.log; echo "make check: failed, see above"; exit 1; }; exit $$tests

pictures: setup-test ## take the documentation's screenshots again
	TAILORBIRD_TESTS_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -m "integration" tests/integration/pages/test_pictures.py tests/integration/pages/test_fleet_page.py $(ARGS)

unit: $(BIN)/tailorbird ## run the tests that need no server, without most of the random cases
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not integration and not matrix and not chaos and not long" $(ARGS)

matrix: setup ## run the tests on every supported server: MySQL 5.7, 8.0, 9.x, MariaDB 10.11, 11.4 (long)
	$(BIN)/python -m pytest -m "matrix and not chaos" $(ARGS)

# the tests that run on several versions of a database server
ON_SERVERS := tests/databases tests/ingest/binlog tests/ingest/postgres tests/ingest/ddl tests/hostile
support-matrix: setup ## run these tests on every server version, and count them in docs/results/support.md (long)
	@mkdir -p build
	-$(BIN)/python -m pytest -m "not chaos" --junitxml build/support.xml $(ON_SERVERS) $(ARGS)
	$(BIN)/python -m tests.support_matrix build/support.xml > docs/results/support.md

chaos: setup ## run the pipeline while every process is killed again and again (an hour)
	$(BIN)/python -m pytest -m chaos $(ARGS)

fuzz: $(BIN)/tailorbird ## fuzz the binlog decoder, guided by coverage: make fuzz ARGS=-max_total_time=300
	$(BIN)/python $(HASHED) locks/fuzz.txt
	$(BIN)/python tests/ingest/binlog/fuzz_decoder.py .tailorbird/fuzz $(or $(ARGS),-max_total_time=300) -rss_limit_mb=512 -max_len=70000

fuzz-database: setup ## run random databases on a real server: make fuzz-database ARGS="--server mysql-8.0 --cases 500 --seed 1"
	@$(BIN)/python -m tests.databases.fuzz $(ARGS)

fuzz-ports: $(BIN)/tailorbird ## fuzz every listening port until interrupted: make fuzz-ports ARGS="--seed 1 --rounds 100"
	@$(BIN)/python -m tests.hostile.fuzz_ports $(ARGS)

bench: bench-decode bench-index bench-capture bench-capture-postgres bench-joins ## run the benchmarks that compare with other systems

bench-capture: $(BIN)/tailorbird ## compare capture of a binlog with Debezium's; needs Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_capture $(ARGS)

bench-capture-postgres: $(BIN)/tailorbird ## compare capture of PostgreSQL with Debezium's; needs Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_capture_postgres $(ARGS)

bench-loops: $(BIN)/tailorbird ## compare the two loops that read one-row transactions (ADR 26)
	@$(BIN)/python -m benchmarks.bench_loops $(ARGS)

bench-decode: $(BIN)/tailorbird ## compare decoding of a binlog with three libraries; needs Go, Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_decode $(ARGS)

bench-index: setup ## compare indexing with pysolr alone, and measure its latency; starts the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.bench_index $(ARGS)

soak-index: setup ## index for half an hour: memory, logs, tombstones and lag must not grow; starts the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.soak_index $(ARGS)

bench-joins: setup ## compare joins with Flink SQL (half an hour): make bench-joins ARGS="--scale 0.1"
	@$(BIN)/python -m benchmarks.bench_joins $(ARGS)

bench-aggregates: setup ## compare groups and many-to-many joins with Flink SQL: make bench-aggregates ARGS="--scale 0.1"
	@$(BIN)/python -m benchmarks.bench_aggregates $(ARGS)

bench-join-latency: setup ## measure the time from Kafka to a readable row at 500 changes/s; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_join_latency $(ARGS)

bench-start: setup ## measure a join's start, small batches and idle minutes; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_start $(ARGS)

bench-freshness: setup ## measure the time from COMMIT to a query result by stage; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_freshness $(ARGS)

bench-tables: setup ## measure many tables in one Spark application or one process each; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_tables $(ARGS)

bench-many-tables: $(BIN)/tailorbird ## measure what capture costs with 10, 1,000 and 20,000 tables; with `ARGS="--servers mysql"` on real servers
	@$(BIN)/python -m benchmarks.bench_many_tables $(ARGS)

bench-verify: setup ## compare `verify` of a log with one query that digests the table; starts its own servers
	@$(BIN)/python -m benchmarks.bench_verify $(ARGS)

bench-verify-index: setup ## compare `verify` of an index with `--changed-since last`; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_verify_index $(ARGS)

bench-disasters: $(BIN)/tailorbird ## lose each store, restore it by docs/disasters.md, measure the time; starts its own servers
	@$(BIN)/python -m benchmarks.bench_disasters $(ARGS)

soak: $(BIN)/tailorbird ## an hour of random kills, schema changes, snapshots and verifications; starts its own servers
	@$(BIN)/python -m benchmarks.bench_soak $(ARGS)

bench-gateway: setup ## measure a gateway with a thousand agents; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_gateway $(ARGS)

# Protobuf definitions, each with the folder of its generated code.
PROTOS := wire:src/indexer/peer fleet:src/ingest/fleet
protoc = $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(2) --pyi_out=$(2) proto/$(1).proto

proto: $(BIN)/tailorbird ## generate the Python code of proto/*.proto
	$(foreach one,$(PROTOS),$(call protoc,$(firstword $(subst :, ,$(one))),$(lastword $(subst :, ,$(one)))) &&) true

check-proto: ## check that the committed code is what proto/*.proto generates (run `make proto` if it is not)
	@rm -rf build/proto && mkdir -p build/proto
	@$(foreach one,$(PROTOS),$(call protoc,$(firstword $(subst :, ,$(one))),build/proto) &&) true
	@$(foreach one,$(PROTOS),$(foreach kind,pyi py,diff -u $(lastword $(subst :, ,$(one)))/$(firstword $(subst :, ,$(one)))_pb2.$(kind) build/proto/$(firstword $(subst :, ,$(one)))_pb2.$(kind) &&)) true

bench-dashboard: setup-test ## measure panels over a million documents with fifty viewers; starts the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.bench_dashboard $(ARGS)

# LOCK reads what may be installed from standard input or pyproject.toml, and writes all hashes of each release
LOCK := $(TOOLS)/bin/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-strip-extras
constraints: $(TOOLS)/ready ## update locks/ to the newest versions: make constraints ARGS="--upgrade-package requests" for one
	$(LOCK) $(or $(ARGS),--upgrade) --all-extras --group dev --output-file locks/dev.txt pyproject.toml
	$(LOCK) --all-extras --constraint locks/dev.txt --output-file locks/run.txt pyproject.toml
	@# one for each container image; `run.txt` decides the versions
	$(LOCK) --extra poll --extra mssql --extra otel --extra openlineage --constraint locks/run.txt --output-file locks/capture.txt pyproject.toml
	$(LOCK) --extra joins --extra iceberg --extra otel --extra openlineage --constraint locks/run.txt --output-file locks/join.txt pyproject.toml
	$(LOCK) --extra indexer --extra otel --extra openlineage --constraint locks/run.txt --output-file locks/index.txt pyproject.toml
	$(LOCK) $(addprefix --extra ,console dashboard gateway poll mssql iceberg formats otel) --constraint locks/run.txt --output-file locks/console.txt pyproject.toml
	echo setuptools setuptools-scm pip | tr ' ' '\n' | $(LOCK) --constraint locks/dev.txt --output-file locks/build.txt -
	echo uv pip-audit kubernetes-validate | tr ' ' '\n' | $(LOCK) $(or $(ARGS),--upgrade) --output-file locks/tools.txt -
	echo atheris==3.0.0 | $(LOCK) --output-file locks/fuzz.txt -

audit: $(TOOLS)/ready ## compare the locked versions with known vulnerabilities; it needs the network
	$(TOOLS)/bin/python -m tests.audit $(ARGS)

# needs root, buildah and mmdebstrap, or Docker; and Go, for Helm. IMAGES=no leaves out the images.
release: setup $(if $(filter no,$(IMAGES)),,images) agent-file helm ## build wheel, sources, images, chart, agent and SBOM of this version into build/release
	$(BIN)/python -m tests.release $(HELM) build/tailorbird build/release $(if $(filter no,$(IMAGES)),--without-images)

sbom: setup ## list all packages, jars and servers with their hashes in build/sbom.json (CycloneDX)
	@mkdir -p build; $(BIN)/python -m tailorbird.devtools.stack.file_sbom locks/*.txt > build/sbom.json; echo build/sbom.json

clean: ## remove the environment and every file of the local stack
	-$(BIN)/tailorbird stack down --purge
	rm -rf $(VENV) .tailorbird .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
