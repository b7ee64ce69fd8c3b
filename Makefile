# Every target runs from .venv, which `ready` makes or repairs first. GNU make 3.81 (macOS) suffices.
.DEFAULT_GOAL := help
.PHONY: help env demo test check format lint types floors unused bench soak mutants up down lock clean ready

BIN := .venv/bin
ARGS ?=
WORKERS ?= 2
TYPED := shared services tools $(wildcard bench)

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

env: ready ## only .venv, in one to two minutes: with it .venv/bin/headrace works

demo: ready ## a whole campaign on this machine: servers, Meta's simulator, sender, ingest, report
	@$(BIN)/headrace demo $(ARGS)

test: ready ## the whole test suite; one test: make test ARGS="-k name"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: ready ## format, lint, types, floors and unused dependencies; all of them, also when one fails
	@$(MAKE) --no-print-directory -k format lint types floors unused

format: ready
	@echo "== format" && $(BIN)/ruff format --check .

lint: ready
	@echo "== lint" && $(BIN)/ruff check --quiet .

types: ready
	@echo "== types" && $(BIN)/mypy $(TYPED)

floors: ready
	@echo "== floors" && $(BIN)/lint-imports --no-logo

unused: ready
	@echo "== unused" && $(BIN)/deptry shared services

bench: ready ## measures on this machine; one of them: make bench ONLY=transport
	@for script in $(or $(ONLY:%=bench/%.py),$(wildcard bench/*.py)); do \
		echo "== $$script" && $(BIN)/python $$script $(ARGS) || exit 1; \
	done

soak: ready ## the long tests, which `make test` leaves out
	@$(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)

mutants: ready ## plants known defects one by one; each must turn its tests red
	@$(BIN)/python tools/mutants.py $(ARGS)

up: ## the stack in docker compose; writes .env with random secrets when it is missing
	@sh tools/up.sh

down: ## stops the stack of `make up`; its data stay
	@docker compose down

lock: ## resolves the requirements again (needs uv)
	@sh tools/lock.sh

clean: ## removes .venv and the caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage build *.egg-info
	@find shared services tests tools bench alembic -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

ready:
	@sh tools/setup.sh
