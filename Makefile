# Two commands do everything: `make run` and `make test`. `make help` lists the rest.

SCENARIO ?= smoke
N        ?= 600
VENV     := .venv
BIN      := $(VENV)/bin
READY    := $(VENV)/.ready
# pip's own news, and how it would build older packages, are nothing to somebody who sets this up
INSTALL  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
# the newest Python of the supported range that is on this machine
PYTHON   ?= $(shell for p in python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null \
	&& { echo $$p; break; }; done)

.DEFAULT_GOAL := help
.PHONY: help setup run test quick interop differential faults check format lock doctor gate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## the virtual environment, from requirements.lock

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "serde_lab needs Python 3.11 or 3.12; set PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (a few minutes, once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes --requirement requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

run: $(READY) ## run a scenario and write its report: make run SCENARIO=smoke
	@$(BIN)/python -m serde_lab run --fetch-hudi $(SCENARIO)

test: $(READY) ## the whole test suite
	@$(BIN)/python -m serde_lab doctor --fetch-hudi >/dev/null
	@$(BIN)/python -m pytest --quiet --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

quick: $(READY) ## the tests that need neither Spark nor Hudi, without the slow ones (two minutes)
	@$(BIN)/python -m pytest --quiet --numprocesses auto --maxprocesses 4 --dist worksteal \
		-m "not spark and not hudi and not slow"

interop: $(READY) ## every table kind that the lab and Apache Hudi share (hours; goes on where it stopped)
	@$(BIN)/python -m tests.peers.interop $(INTEROP)

differential: $(READY) ## N random histories by Apache Hudi and by the lab, equal in every reader (goes on where it stopped)
	@$(BIN)/python -m tests.differential --histories $(N) $(DIFFERENTIAL)

faults: $(READY) ## every fault that the tests make, and a table of what readers saw (minutes)
	@$(BIN)/python -m pytest tests/faults --quiet --fault-table tests/faults/FAULTS.md

check: $(READY) ## lint, types, import contracts, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(READY) ## put the code into its one form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY) ## resolve pyproject.toml anew into requirements.lock (versions and hashes, no index address)
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --universal \
		--python-version 3.11 --no-emit-index-url --no-header --quiet --upgrade \
		--output-file requirements.lock

doctor: $(READY) ## say what is missing on this machine
	@$(BIN)/python -m serde_lab doctor

gate: $(READY) ## judge the newest run of SCENARIO against its committed baseline
	@$(BIN)/python -m serde_lab gate $(SCENARIO) --shared-machine

clean: ## remove the environment and the caches; results and reports stay
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
