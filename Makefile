# Every target makes what it needs. The first one makes .venv. It is updated only when the pins,
# pyproject.toml or the C kernels change.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := runs/demo
DEMO_ROUNDS ?= 60
export OMP_NUM_THREADS = 1
# Some container images switch bytecode off. Every process of a test would then compile the package again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help install demo test test-heavy fuzz lint docs bench clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# With --no-build-isolation, the build tools come from the pins too.
.venv/.run: pyproject.toml constraints.txt hatch_build.py src/fedepd/network/_kernels.c
	@test -n "$(PYTHON)" || { \
		echo "no Python 3.11 or newer found; install one or call 'make PYTHON=/path/to/python3 ...'" >&2; exit 1; }
	@echo "installing into .venv (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) torch==2.13.0 hatchling editables
	@$(PIP) --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.run
	@echo "installing the packages for tests into .venv (once) ..."
	@$(PIP) --no-build-isolation -e ".[dev]"
	@touch $@

install: .venv/.run  ## make .venv with the package and only what a run needs

demo: .venv/.run  ## train FedEPD and FedAvg on a built-in graph, print a table, write runs/demo/report.html
	@rm -rf $(DEMO)
	$(BIN)/fedepd compare fedepd fedavg --seeds 3 --workers 2 --rounds $(DEMO_ROUNDS) --out $(DEMO)
	@echo "Open $(DEMO)/report.html in a browser. Next: docs/tutorial-bank.md, from messy tables to alerts, or"
	@echo "'$(BIN)/fedepd run fedepd --help' for every setting."

test: .venv/.dev  ## run all tests but the heavy ones, two at a time
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

test-heavy: .venv/.dev  ## run the heavy tests: faults of a federation, demo without a network, hostile names
	$(BIN)/python -m pytest -m heavy -n 2 --dist loadgroup

SECONDS ?= 600
FORMAT ?=
fuzz: .venv/.dev  ## feed randomly changed files to their readers for SECONDS=600 and keep what breaks one
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --seconds $(SECONDS) --format "$(FORMAT)"

lint: .venv/.dev  ## run ruff check, ruff format --check and mypy --strict
	$(BIN)/ruff check . && $(BIN)/ruff format --check -q .
	$(BIN)/mypy

# The variable silences an announcement of the theme about another program.
docs: .venv/.docs  ## the docs site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: .venv/.dev  ## compare the cost of a round with a plain torch_geometric loop; writes benchmarks/out
	$(BIN)/fedepd bench --scaling --out benchmarks/out

clean:  ## remove .venv, runs/demo, site and caches
	rm -rf .venv $(DEMO) site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.docs: .venv/.run
	@echo "installing what the docs site needs into .venv (once) ..."
	@$(PIP) --no-build-isolation -e ".[docs]"
	@touch $@

.venv/.federation: .venv/.run
	@echo "installing NVFlare into .venv (once) ..."
	@$(PIP) --no-build-isolation -e ".[federation]"
	@touch $@

.PHONY: federation-demo
federation-demo: .venv/.federation  ## four banks and a coordinator here, from their tables to their models
	$(BIN)/fedepd federation demo
