# One command per need; `make help` lists them. Everything runs in .venv, which any target creates when it is missing.
PYTHON ?= python3
BIN    := .venv/bin

.PHONY: help demo test check fast crash bench bench-quick clean gen

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "simpleworkflow needs Python 3.11 or newer; try: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: .venv/.ready ## watch orders of many steps survive two killed workers (SQLite, under a minute)
	@$(BIN)/python -m simpleworkflow.cli.demo

test: .venv/.ready check ## the whole suite on SQLite and PostgreSQL
	$(BIN)/python -m pytest -m "not slow" -n 4 --dist loadgroup

check: .venv/.ready ## style, types and the arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: .venv/.ready ## the tests that need no PostgreSQL
	$(BIN)/python -m pytest -m "not slow" tests/model tests/tidy

crash: .venv/.ready ## every crash point, race and law at full length (a quarter of an hour); figures go to bench/results
	@rm -f bench/results/crash.jsonl
	CRASH_FIGURES=$(CURDIR)/bench/results/crash.jsonl $(BIN)/python -m pytest -m slow -n 2 --dist loadgroup

.venv/.bench: .venv/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

bench: .venv/.bench ## ours and the peers side by side, under 40 minutes; table, plot and JSON go to bench/results
	$(BIN)/python bench

bench-quick: .venv/.bench ## the same in under five minutes, to see that it works; its figures say little
	$(BIN)/python bench --quick

gen: .venv/.ready ## regenerate the blocking twin and the schema dumps
	$(BIN)/python tools/twin.py
	$(BIN)/python tools/dump_schema.py

clean: ## remove everything that can be made again
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
