# `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
EXTRA ?= dev
SIZE ?= full
MINUTES ?= 10
RUNNER ?= local
FUZZ_SECONDS ?= 600
RUNS ?= 100
RESTARTS ?= 20
PROMOTIONS ?= 20
HOURS ?= 1
MIRROR_KILLS ?= 30
TRIALS ?= 1
PAIR_SECONDS ?= 60
BASE ?= main
VERSION ?= next
JOBS ?= 3
WORKFLOWS ?= yes

# Compiled modules are kept for the next environment that has the same sources.
export PGWIRE_CODEC_BUILDS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pgwire_codec/builds

# Bytecode is kept, too: the tests start many interpreters, and pytest rewrites every test file.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv test thorough quick test-spark test-postgresql crash soak lint sanitize fuzz demo demo-spark bench \
	bench-versions bench-peers bench-wheel bench-compare bench-page bench-capture bench-log bench-spark bench-lake bench-fresh bench-size wheel image test-arm64 docs changelog tutorial clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

venv: $(VENV)/installed ## create .venv with what the tests need (PYTHON=... is its interpreter)

# A stamp, because neither the directory's nor the interpreter's time says what is installed.
SOURCES = $(foreach kind,pyx pxd,$(wildcard pgwire_codec/*/*.$(kind) pgwire_codec/*/*/*.$(kind)))
$(VENV)/installed: pyproject.toml setup.py $(SOURCES)
	@test -x $(BIN)/python || { python=$$(.ci/find-python) && "$$python" -m venv --clear $(VENV); }
	tools/install $(BIN)/python --editable '.[$(EXTRA)]'
	@touch $@

# More processes than a small machine has cores: many tests wait for a server. Two of them take
# Spark's tests, with a session in each; each process has servers of its own.
PYTEST = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadgroup

# What decodes. Other packages do not see which implementation is in use: they call it by what these
# tests and the differential ones compare in both.
DECODING = $(addprefix tests/,arrow changes codec core protocol transactions types \
	test_corpus.py test_impl.py test_import.py) $(wildcard tests/test_decoder_*.py)
IN_PYTHON = $(if $(TESTS),$(filter $(DECODING) $(addsuffix /%,$(DECODING)),$(TESTS)),$(DECODING))

test: venv ## run the tests, and the quick ones of decoding in plain Python too (TESTS=tests/cli)
	$(BIN)/python -m tests.support.java_archive
	$(PYTEST) --budget test -m "not thorough" $(TESTS)
	$(if $(IN_PYTHON),PGWIRE_CODEC_IMPL=python $(PYTEST) $(IN_PYTHON) \
		-m "not slow and not differential and not both and not thorough")

thorough: venv ## run the tests that `make test` leaves out: more captures, options, interruptions
	$(BIN)/python -m tests.support.java_archive
	$(PYTEST) --budget thorough -m thorough

# They wait for nothing, so a process for each core is enough.
quick: venv ## run the tests that take seconds: no Spark, no server, the compiled core only
	PGWIRE_CODEC_IMPL=cython HYPOTHESIS_PROFILE=quick $(PYTEST) --numprocesses logical \
		-m "not slow and not differential and not thorough"

lint: venv ## check style, format, types and imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict pgwire_codec tests/crash tests/soak
	$(BIN)/lint-imports
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint --max-line-length 100 pgwire_codec
	$(BIN)/python tools/ratchet.py
	$(if $(filter yes,$(WORKFLOWS)),./tools/actionlint $(BIN)/python)
	./tools/lint-deploy $(BIN)/python

# What leaks is asked of a part of the tests only: other libraries leak at their end, too.
SANITIZED = cd build/sanitize && \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	UBSAN_OPTIONS=print_stacktrace=1 LSAN_OPTIONS=suppressions=tests/leaks.txt:print_suppressions=0 \
	PYTHONMALLOC=malloc PGWIRE_CODEC_IMPL=cython
SANITIZED_TESTS = $(abspath $(BIN))/python -m pytest -m "not slow" -p no:cacheprovider

test-spark: venv ## run Spark's tests on another release: SPARK=3.5, 4.0, 4.1, 4.2
	./tools/test-spark $(BIN)/python $(SPARK)

test-postgresql: venv ## run the tests of capturing on another major: MAJOR=12 to 19
	./tools/test-postgresql $(BIN)/python $(MAJOR)

crash: venv ## kill captures and mirrors, restart servers, promote standbys (RUNS=100 RESTARTS=20 PROMOTIONS=20 MIRROR_KILLS=30 TRIALS=1 PAIR_SECONDS=60)
	$(BIN)/python -m tests.crash --kills $(RUNS) --restarts $(RESTARTS) --promotions $(PROMOTIONS) \
		--mirror-kills $(MIRROR_KILLS) --trials $(TRIALS) --pairs $(PAIR_SECONDS)

soak: venv ## run capture and mirror under load and faults, compare them, record memory (HOURS=1 SEED=…)
	$(BIN)/python -m tests.soak --hours $(HOURS) $(if $(SEED),--seed $(SEED))

sanitize: venv ## run the quick tests with the core under gcc's sanitizers
	tools/install $(BIN)/python "setuptools>=77"
	./tools/build-copy build/sanitize $(BIN)/python CC=gcc PGWIRE_CODEC_SANITIZE=address,undefined
	$(SANITIZED) ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32 $(SANITIZED_TESTS) \
		--numprocesses $(JOBS)
	$(SANITIZED) ASAN_OPTIONS=detect_leaks=1 $(SANITIZED_TESTS) \
		tests/core/test_differential.py tests/core/test_threads.py -k "capture or wrong or way or side"

fuzz: venv ## compare the core with the reference on mutated inputs (FUZZ_SECONDS=600)
	FUZZ_SECONDS=$(FUZZ_SECONDS) ./fuzz/run $(BIN)/python

demo: $(VENV)/demo ## run the demonstration: a shop's tables from an embedded server to a lakehouse
	$(BIN)/pgwire-codec demo

demo-spark: $(VENV)/demo-spark ## run the same on Spark
	$(BIN)/pgwire-codec demo --runner spark

# Much less than the tests need, unless that is there.
COMMA := ,
SIZE_OF_demo = 560 MB, some 90 s
SIZE_OF_demo-spark = 1.2 GB with Spark and Java, some 2 minutes
$(VENV)/demo $(VENV)/demo-spark: pyproject.toml setup.py $(SOURCES)
	@if [ -e $(VENV)/installed ]; then $(MAKE) --no-print-directory venv; else \
		echo "Installing what the demo needs into $(VENV), and compiling the core: $(SIZE_OF_$(@F))."; \
		test -x $(BIN)/python || { python=$$(.ci/find-python) && "$$python" -m venv --clear $(VENV); }; \
		tools/install $(BIN)/python --editable \
			'.[demo$(if $(filter demo-spark,$(@F)),$(COMMA)spark$(COMMA)java)]'; \
	fi
	@touch $@

# pypgoutput without what it depends on: that would put a second psycopg2 in the first one's place.
$(VENV)/bench: $(VENV)/installed
	tools/install $(BIN)/python --editable '.[bench,peers]'
	tools/install $(BIN)/python --no-deps pypgoutput==0.0.3
	@touch $@

bench: $(VENV)/bench ## measure each step beside its peers, write docs/benchmarks.md (SIZE=quick: only print)
	@mkdir -p build/benchmarks
	$(BIN)/python -m pytest -q benchmarks --size=$(SIZE) --benchmark-quiet \
		--benchmark-json=build/benchmarks/results.json
	$(BIN)/python -m benchmarks.results_page build/benchmarks/results.json \
		$(if $(filter full,$(SIZE)),docs,build/benchmarks)

bench-peers: $(VENV)/bench ## measure decoders in Rust and Go, too, where cargo and go are installed
	$(BIN)/python -m benchmarks.peers $(SIZE) $(if $(filter full,$(SIZE)),docs,build)/benchmarks

# The other version is built in a copy, and both get the same messages.
bench-versions: $(VENV)/bench ## measure every shape of input on another revision, too: BASE=main
	rm -rf build/base && mkdir -p build/base
	git archive $(BASE) | tar -xf - -C build/base
	cd build/base && $(abspath $(BIN))/python setup.py --quiet build_ext --inplace
	$(BIN)/python -m benchmarks.side_by_side build/base $(SHAPES)

bench-capture: $(VENV)/bench ## measure a capture beside pg_recvlogical and Debezium's engine, a snapshot beside COPY
	for each in capture_speed snapshot_speed; do \
		$(BIN)/python -m benchmarks.$$each $(SIZE) \
			$(if $(filter full,$(SIZE)),docs,build/benchmarks) || exit 1; \
	done

bench-log: $(VENV)/bench ## measure the size of logs, and writing and reading them, by compression
	$(BIN)/python -m benchmarks.log_size

bench-spark: $(VENV)/bench ## measure Spark beside what it takes at the least, and beside from_json
	$(BIN)/python -m benchmarks.spark_speed $(SIZE) $(if $(filter full,$(SIZE)),docs,build/benchmarks)

bench-lake: $(VENV)/bench ## measure mirrors and their peers beside decoding and Parquet's writer
	$(BIN)/python -m benchmarks.lake_speed $(SIZE) $(if $(filter full,$(SIZE)),docs,build/benchmarks)

bench-fresh: $(VENV)/bench ## measure the age of rows in a lake beside a living server (MINUTES=10 RUNNER=local OPTIONS=…)
	$(BIN)/python -m benchmarks.fresh_rows $(MINUTES) $(RUNNER) docs $(OPTIONS)

bench-size: $(VENV)/bench ## measure large logs: planning, skipping, and many tables on Spark
	$(BIN)/python -m benchmarks.large_logs $(SIZE) $(if $(filter full,$(SIZE)),docs,build/benchmarks)

# The wheel's benchmarks in an environment that has the wheel, not the checkout.
bench-wheel: venv ## build the wheel and run the benchmarks on it: build/bench-wheel/results.json
	tools/install $(BIN)/python --editable '.[wheel]'
	rm -rf build/bench-wheel
	$(BIN)/python -m build --wheel --outdir build/bench-wheel
	./tools/bench-wheel $(BIN)/python build/bench-wheel/*.whl build/bench-wheel

bench-compare: $(VENV)/bench ## compare that with another run's (MAIN=…/results.json)
	$(BIN)/python -m benchmarks.compare $(MAIN) build/bench-wheel/results.json

bench-page: $(VENV)/bench ## make one page of several machines' runs (RUNS="NAME=FILE …")
	$(BIN)/python -m benchmarks.machines_page build/bench-page $(RUNS)

wheel: venv ## build sdist and manylinux wheel, and run all tests on it in an empty environment
	tools/install $(BIN)/python --editable '.[wheel]'
	rm -rf build/wheel
	$(BIN)/python -m build --outdir build/wheel/built
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir build/wheel \
		build/wheel/built/*.whl
	$(BIN)/auditwheel show build/wheel/*.whl
	JOBS=$(JOBS) ./tools/test-wheel $(BIN)/python build/wheel/*.whl build/wheel

image: ## build the images with Docker, and run a capture and a mirror in them
	./tools/test-image

test-arm64: venv ## cross-compile the wheel for ARM and run the quick tests on it under qemu
	JOBS=$(JOBS) ./tools/test-arm64 $(BIN)/python

docs: venv ## build the documentation's site: build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

changelog: venv ## show the next release's section of CHANGELOG.md (VERSION=…)
	$(BIN)/towncrier build --draft --version $(VERSION)

tutorial: venv ## type the tutorial into an environment that has nothing but the wheel
	rm -rf build/tutorial
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/tutorial/wheel .
	./tools/test-tutorial $(BIN)/python build/tutorial/wheel/*.whl build/tutorial

clean: ## remove what building and testing left behind
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -rf spark-warehouse metastore_db derby.log
	find pgwire_codec tests -name __pycache__ -type d -prune -exec rm -rf {} +
