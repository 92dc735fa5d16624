# Everything a contributor runs. CI calls only these.
#   ARGS="..."         flags for the command that a target runs
#   PYTHON=python3.12  another interpreter, with a virtual environment of its own

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
ARGS ?=
# Tests wait for disks, timers and other processes about as long as they compute.
WORKERS ?= $(shell echo $$((2 * $$(nproc) < 8 ? 2 * $$(nproc) : 8)))

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --ignore tests/tidy
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header \
	--annotation-style line --no-emit-index-url --no-emit-find-links

# Tests start hundreds of Python processes. Without bytecode, which many containers switch off, each
# one compiles the whole package.
unexport PYTHONDONTWRITEBYTECODE

# What tests need besides Python's packages: see tests/fakes/programs.py.
TEST_PROGRAMS := chromium compiler kcat
SYSTEM_PROGRAMS := $(TEST_PROGRAMS) curl strace
PREPARE_TESTS := $(BIN)/python scripts/prepare_tests.py

# Written last, so that an interrupted set-up is done again.
RUN_READY := $(VENV)/.ready-to-run
SPARK_READY := $(VENV)/.ready-for-spark
DEV_READY := $(VENV)/.ready-to-develop

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run demo setup test test-system test-kafka torture coverage check check-bare format bench \
	peers lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_READY) ## Set up what is needed and start the broker
	@$(BIN)/millstream serve $(ARGS)

demo: $(SPARK_READY) ## Run a shop's events through a broker and a Spark pipeline, and check the result
	@$(BIN)/python examples/demo/demo.py $(ARGS)

setup: $(DEV_READY) ## Set up everything for development in .venv
	@$(PREPARE_TESTS)

test: $(DEV_READY) ## Run the fast tests: deterministic ones, and each protocol and client once
	@$(PREPARE_TESTS) $(TEST_PROGRAMS)
	@$(PYTEST) $(ARGS)

test-system: $(DEV_READY) ## Run the other tests: kills, every client, Spark, documents, random examples
	@$(PREPARE_TESTS) $(SYSTEM_PROGRAMS)
	@$(PYTEST) -m "(system or hypothesis) and not kafka and not torture" \
		--hypothesis-profile others $(ARGS)

test-kafka: $(DEV_READY) ## Run the comparisons with Apache Kafka, after make peers
	@$(PYTEST) -m kafka $(ARGS)

torture: $(DEV_READY) ## Run the long crash tests, attacks with time limits, and properties on random examples
	@$(PREPARE_TESTS) $(SYSTEM_PROGRAMS)
	@HONEST_WAIT_MS=250 $(BIN)/pytest -m "torture or hypothesis or hostile" \
		--hypothesis-profile random --timeout 0 $(ARGS)

coverage: $(DEV_READY) ## Run all tests and report the lines that none reaches
	@$(PREPARE_TESTS) $(SYSTEM_PROGRAMS)
	@$(PYTEST) -m "not kafka and not torture" --cov $(ARGS)

check: $(DEV_READY) ## Check format, lint, types, import rules and tidiness
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest --quiet tests/tidy

format: $(DEV_READY) ## Format the code and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(DEV_READY) ## Run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

peers: $(DEV_READY) ## Install the servers that the benchmarks compare with
	@scripts/peers.sh .peers

check-bare: ## Run make demo and make test on a bare Debian that is made for it (as root)
	@scripts/check_bare.py $(ARGS)

lock: $(DEV_READY) ## Pin the newest dependencies that fit together
	@$(COMPILE) --upgrade --output-file requirements/base.txt pyproject.toml
	@$(COMPILE) --upgrade --extra demo --constraint requirements/base.txt \
		--output-file requirements/spark.txt pyproject.toml
	@$(COMPILE) --upgrade --extra dev --constraint requirements/spark.txt \
		--output-file requirements/dev.txt pyproject.toml

clean: ## Remove virtual environments, caches and build results; data stays
	@rm -rf .venv .venv-* .peers build dist htmlcov .coverage* .hypothesis
	@rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests benchmarks examples scripts -name __pycache__ -prune -exec rm -rf {} +
	@rm -f src/millstream/records/_arrow*.so

$(RUN_READY): requirements/base.txt pyproject.toml hatch_build.py src/millstream/records/_arrow.pyx
	@echo "Setting up $(VENV)"
	@scripts/make_venv.sh $(PYTHON) $(VENV)
	@$(PIP) --requirement requirements/base.txt
	@$(PIP) --no-deps --editable .
	@touch $@

$(SPARK_READY): $(RUN_READY) requirements/spark.txt
	@echo "Setting up Spark"
	@$(PIP) --requirement requirements/spark.txt
	@scripts/java.sh $(BIN)/python
	@touch $@

$(DEV_READY): $(SPARK_READY) requirements/dev.txt
	@echo "Setting up the tools for development"
	@$(PIP) --requirement requirements/dev.txt
	@touch $@
