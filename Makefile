# Two commands do everything: `make run` and `make test`. `make help` lists the rest.

SCENARIO ?= smoke
N        ?= 5000
# one more than there are cores, since tests wait for JVMs and processes
WORKERS   = $(shell $(BIN)/python -c "import os; print(min(4, len(os.sched_getaffinity(0)) + 1))" 2>/dev/null || echo 3)
VENV     := .venv
BIN      := $(VENV)/bin
READY    := $(VENV)/.ready
# Without pip's notices about new versions and about legacy builds. uv installs the lock file at a third of
# pip's cost; it does not read pip's settings, so pip installs where uv finds no package index.
INSTALL  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
# a Python of the supported range that is on this machine; pyspark 3.5 does not name 3.13, so that is a last choice
PYTHON   ?= $(shell for p in python3.12 python3.11 python3.13 python3 python; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null \
	&& { echo $$p; break; }; done)

.DEFAULT_GOAL := help
.PHONY: help setup run test quick interop differential faults profile docs example check format \
	references lock doctor gate clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make the virtual environment from requirements.lock

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "serde_lab needs Python 3.11 to 3.13; set PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON) (a few minutes, once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock >$(VENV)/uv.lock
	@$(INSTALL) --require-hashes --requirement $(VENV)/uv.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements.lock 2>/dev/null \
		|| $(INSTALL) --require-hashes --requirement requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

run: $(READY) ## run a scenario and write its report: make run SCENARIO=smoke
	@$(BIN)/python -m serde_lab run --fetch-hudi --fetch-formats $(SCENARIO)

test: $(READY) ## run the whole test suite
	@$(BIN)/python -m serde_lab doctor --fetch-hudi --fetch-formats >/dev/null
	@$(BIN)/python -m tests.class_archive
	@$(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

quick: $(READY) ## run the tests without Spark, Hudi and the slow ones (two minutes)
	@$(BIN)/python -m pytest --quiet --numprocesses auto --maxprocesses 4 --dist worksteal \
		-m "not spark and not hudi and not slow"

interop: $(READY) ## test every kind of table that the lab and Apache Hudi share (hours; continues where it stopped)
	@$(BIN)/python -m tests.peers.interop $(INTEROP)

differential: $(READY) ## compare N random table histories with a model, in every reader (continues where it stopped)
	@$(BIN)/python -m tests.differential --histories $(N) $(DIFFERENTIAL)

faults: $(READY) ## run the fault tests, kill a long stream (continues where it stopped), write a table of what readers saw
	@$(BIN)/python -m pytest tests/faults --quiet --fault-table tests/faults/FAULTS.md
	@$(BIN)/python -m tests.faults.killed_stream --table tests/faults/FAULTS.md
	@$(BIN)/python -m tests.faults.killed_stream --table tests/faults/FAULTS.md --course hand-over --kills 40 --batches 160
	@$(BIN)/python -m tests.faults.killed_stream --table tests/faults/FAULTS.md --course s3 --kills 30 --batches 150

profile: $(READY) ## sample an arm function by function, write results/profile.md: make profile PROFILE="hudi_claims --arm arrow"
	@$(BIN)/python -m tests.profiled $(PROFILE)

docs: $(READY) ## build the documentation site in build/docs; fails on broken links and warnings
	@rm -rf build/docs
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env --conf-dir docs/site \
		--doctree-dir .cache/sphinx --builder html . build/docs
	@echo "build/docs/index.html"

example: $(READY) ## write reports/example.html from the newest reference run of upsert_lineitem
	@$(BIN)/python -m serde_lab report upsert_lineitem --results results/reference --out reports/example.html

references: $(READY) ## remake the stale runs that documents quote; says before how long it takes, goes on where it stopped
	@$(BIN)/python -m serde_lab references
	@$(BIN)/python -m serde_lab report upsert_lineitem --results results/reference --figures build/figures \
		--out reports/example.html
	@cp build/figures/phases.svg results/reference/figures/phases.svg

check: $(READY) ## check lint, types, import contracts and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(READY) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY) ## write requirements.lock from pyproject.toml (versions and hashes, no index address)
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra docs --generate-hashes --universal \
		--python-version 3.11 --no-emit-index-url --no-header --quiet --upgrade \
		--output-file requirements.lock

doctor: $(READY) ## check the prerequisites on this machine
	@$(BIN)/python -m serde_lab doctor

gate: $(READY) ## judge the newest run of SCENARIO against its committed baseline
	@$(BIN)/python -m serde_lab gate $(SCENARIO) --shared-machine

clean: ## remove the environment, the caches and the site; results and reports stay
	rm -rf $(VENV) .cache build/docs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
