# One command per need; `make help` lists them. Everything runs in .venv, which any target creates when it is missing.
PYTHON ?= python3
BIN    := .venv/bin

# The database of the migrate- targets: DB_HOST DB_PORT DB_USER DB_PASSWORD DB_NAME DB_SSLMODE from the command line, the
# environment or the file .env (see .env.example), else SIMPLEWORKFLOW_URL, else the SQLite file simpleworkflow.db.
# tools/with_database.py puts them together. Here they are only handed on as they were written: `$` stays a `$`.
DB_VARIABLES := DB_HOST DB_PORT DB_USER DB_PASSWORD DB_NAME DB_SSLMODE SIMPLEWORKFLOW_URL
define handed_on
ifneq ($(origin $(1)),undefined)
override $(1) := $$(value $(1))
export $(1)
endif
endef
$(foreach name,$(DB_VARIABLES),$(eval $(call handed_on,$(name))))
MIGRATE := $(BIN)/python tools/with_database.py migrate

.PHONY: help house demo test check fast commands crash bench bench-quick bench-before clean gen map build
.PHONY: migrate-up migrate-down migrate-status migrate-reset migrate-create

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "simpleworkflow needs Python 3.11 or newer; try: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the package and all that its tests need into .venv (once; a minute or two) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: .venv/.ready ## watch orders of many steps survive two killed workers (SQLite; 15 s, and the installation the first time)
	@$(BIN)/python -m simpleworkflow demo

test: .venv/.ready check ## the whole suite on SQLite and PostgreSQL
	$(BIN)/python -m pytest -m "not slow" -n 4 --dist loadgroup

# The drivers run in the peers' environments, whose packages are not here.
CHECKED_BENCH = bench/*.py bench/measures $(addprefix bench/peers/,driving.py older.py sitting.py venvs.py)

check: .venv/.ready ## style, types and the arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=bench:tests $(BIN)/mypy --explicit-package-bases $(CHECKED_BENCH)
	$(BIN)/lint-imports --no-cache

fast: .venv/.ready ## the tests that need no PostgreSQL
	$(BIN)/python -m pytest -m "not slow" tests/model tests/tidy

commands: .venv/.ready ## the commands' own battery: every mistake, every listing, hundreds of processes (some minutes)
	$(BIN)/python -m pytest -m slow tests/cli -n 4 --dist loadgroup

crash: .venv/.ready ## every crash point, race and law at full length (a quarter of an hour); figures go to bench/results
	@rm -f bench/results/crash.jsonl
	CRASH_FIGURES=$(CURDIR)/bench/results/crash.jsonl $(BIN)/python -m pytest -m "slow and not alone" -n 2 --dist loadgroup
	CRASH_FIGURES=$(CURDIR)/bench/results/crash.jsonl $(BIN)/python -m pytest -m alone

.venv/.bench: .venv/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

bench: .venv/.bench ## ours and the peers side by side, under 40 minutes; table, plot and JSON go to bench/results
	$(BIN)/python bench

bench-quick: .venv/.bench ## the same in under five minutes, to see that it works; its figures say little
	$(BIN)/python bench --quick

bench-before: export BENCH_BASE := $(value BASE)
bench-before: .venv/.ready ## this tree against an older commit of ours, ten minutes: make bench-before BASE=v0.1.0 [ROUNDS=9] [QUICK=1]
	@$(BIN)/python bench --before="$$BENCH_BASE" $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS))

migrate-up: .venv/.ready ## apply every migration that is missing
	@$(MIGRATE) up

migrate-down: .venv/.ready ## take back the newest migration, with its data; asks, unless YES=1
	@$(MIGRATE) down $(if $(YES),--yes)

migrate-status: .venv/.ready ## show which migrations are applied
	@$(MIGRATE) status

migrate-reset: .venv/.ready ## take everything back and apply it again: every run is lost; asks, unless YES=1 (FORCE=1 insists)
	@$(MIGRATE) reset $(if $(YES),--yes) $(if $(FORCE),--force)

migrate-create: export NEW_MIGRATION := $(value NAME)
migrate-create: .venv/.ready ## write an empty migration for both databases: make migrate-create NAME=add_due_index
	@test -n "$$NEW_MIGRATION" || { echo "say how it is called: make migrate-create NAME=add_due_index" >&2; exit 2; }
	@$(BIN)/python -m simpleworkflow migrate create -- "$$NEW_MIGRATION"

build: .venv/.ready ## build the wheel and the source distribution into dist
	@$(BIN)/python -m build --no-isolation --outdir dist .

house: .venv/.ready ## the structure of the source in numbers: sizes, chains of classes, roads
	@$(BIN)/python tools/house.py

map: .venv/.ready ## draw the rooms, their files and the arrows between them: docs/map.svg, docs/map.txt, ARCHITECTURE.md
	@$(BIN)/python tools/map.py

gen: .venv/.ready ## regenerate the blocking twin, the schema dumps and the expanded SQL
	$(BIN)/python tools/twin.py
	$(BIN)/python tools/dump_schema.py
	$(BIN)/python tools/expand_sql.py

clean: ## remove everything that can be made again
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
