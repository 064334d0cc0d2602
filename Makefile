# `make` prints this help. `make demo` and `make test` set everything up by themselves.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# tests start hundreds of processes: what they import is compiled once
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup classes setup-test demo test check unit bench bench-capture bench-capture-postgres bench-decode bench-loops bench-index soak-index bench-joins bench-aggregates bench-join-latency bench-freshness bench-tables bench-verify bench-gateway bench-dashboard clean constraints proto matrix chaos fuzz fuzz-database

help: ## what can be done here
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/tailorbird: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Tailorbird needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	@touch $@

setup: $(BIN)/tailorbird ## the Python environment, the artefacts of the local stack, the join kernel
	$(BIN)/tailorbird stack fetch
	$(BIN)/python -m joins.kernel.proc_kernel

classes: setup ## an archive of the join's classes, half a minute of work: each later start of a join takes half the time
	$(BIN)/python -m joins.engine.spark_archive

setup-test: classes ## setup, and what tests need beside: faster starts of joins, the browser for the page
	tests/install-browser.sh

demo: setup ## the whole pipeline on live traffic: make demo ARGS="--for 60s --json"
	@$(BIN)/tailorbird demo $(ARGS)

check: $(BIN)/tailorbird ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks
	$(BIN)/lint-imports

test: ## the checks, then all tests, on real servers; what CI runs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check setup-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not matrix and not chaos" $(ARGS)

unit: $(BIN)/tailorbird ## the tests that need no server, without most of the random cases
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not integration and not matrix and not chaos and not long" $(ARGS)

matrix: setup ## the tests on every supported server: MySQL 5.7, 8.0, 9.x, MariaDB 10.11, 11.4 (long)
	$(BIN)/python -m pytest -m "matrix and not chaos" $(ARGS)

chaos: setup ## the long runs in which everything is killed (an hour)
	$(BIN)/python -m pytest -m chaos $(ARGS)

fuzz: $(BIN)/tailorbird ## coverage-guided fuzzing of the binlog decoder: make fuzz ARGS=-max_total_time=300
	$(BIN)/python -m pip install --quiet atheris==3.0.0
	$(BIN)/python tests/ingest/binlog/fuzz_decoder.py .tailorbird/fuzz $(or $(ARGS),-max_total_time=300) -rss_limit_mb=512 -max_len=70000

fuzz-database: setup ## random databases on a real server: make fuzz-database ARGS="--server mysql-8.0 --cases 500 --seed 1"
	@$(BIN)/python -m tests.databases.fuzz $(ARGS)

bench: bench-decode bench-index bench-capture bench-capture-postgres bench-joins ## the benchmarks, each beside its peers

bench-capture: $(BIN)/tailorbird ## binlog to Kafka, acknowledged, beside Debezium; needs Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_capture $(ARGS)

bench-capture-postgres: $(BIN)/tailorbird ## the log of PostgreSQL to Kafka, acknowledged, beside Debezium; needs Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_capture_postgres $(ARGS)

bench-loops: $(BIN)/tailorbird ## what it is worth that capture reads whole transactions in a loop of their own (ADR 26)
	@$(BIN)/python -m benchmarks.bench_loops $(ARGS)

bench-decode: $(BIN)/tailorbird ## decoding the binlog beside three peers; needs Go, Maven and a JDK
	@$(BIN)/python -m benchmarks.bench_decode $(ARGS)

bench-index: setup ## the whole path from HBase's log to Solr beside pysolr alone, and its latency; on the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.bench_index $(ARGS)

soak-index: setup ## half an hour of indexing: memory, logs, stubs and lag must stay flat; on the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.soak_index $(ARGS)

bench-joins: setup ## joins beside Flink SQL: make bench-joins ARGS="--scale 0.1"; a full run takes about half an hour
	@$(BIN)/python -m benchmarks.bench_joins $(ARGS)

bench-aggregates: setup ## groups and joins of many to many beside Flink SQL: make bench-aggregates ARGS="--scale 0.1"
	@$(BIN)/python -m benchmarks.bench_aggregates $(ARGS)

bench-join-latency: setup ## from Kafka's log to a readable row, at 500 changes/s; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_join_latency $(ARGS)

bench-freshness: setup ## where the time goes from COMMIT to a query that shows it; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_freshness $(ARGS)

bench-tables: setup ## many tables in one Spark application or in a process each; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_tables $(ARGS)

bench-verify: setup ## a table compared with its log beside one query that digests it; servers of its own
	@$(BIN)/python -m benchmarks.bench_verify $(ARGS)

bench-gateway: setup ## a gateway beside writing to Kafka directly, and a thousand agents on it; needs `tailorbird stack up`
	@$(BIN)/python -m benchmarks.bench_gateway $(ARGS)

proto: $(BIN)/tailorbird ## generate the Python of proto/*.proto
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/indexer/peer --pyi_out=src/indexer/peer proto/wire.proto
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=src/ingest/fleet --pyi_out=src/ingest/fleet proto/fleet.proto

bench-dashboard: setup-test ## panels over a million documents: Solr's time, ours, first paint, fifty viewers; on the local stack
	@$(BIN)/tailorbird stack up
	@$(BIN)/python -m benchmarks.bench_dashboard $(ARGS)

constraints: ## renew constraints.txt from what is newest
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report build-report.json '.[all]' --group dev
	$(BIN)/python -c 'import json; r = json.load(open("build-report.json")); l = sorted({f"{i[\"metadata\"][\"name\"].lower()}=={i[\"metadata\"][\"version\"]}" for i in r["install"] if i["metadata"]["name"] != "tailorbird"}); print("# The versions that tests run against; `make setup` passes this file to pip. Renew with `make constraints`.", *l, sep="\n")' > constraints.txt
	rm build-report.json

clean: ## remove the environment and every file of the local stack
	-$(BIN)/tailorbird stack down --purge
	rm -rf $(VENV) .tailorbird .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
