# One line for each thing a person does here. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup demo test all-tests soak lint docs bench clean
SERVE ?= 1
PYTEST_ARGS ?=

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## all set-up: .venv, AIPerf, engine, weights (seconds when done)
	@scripts/setup

demo: setup ## measure a small real model and show its curve (SERVE=0: stop after the table)
	@SERVE=$(SERVE) scripts/demo

test: ## what CI runs (SYSTEM=1: install the system parts first, allow no skip)
	@if [ "$$CI" = true ] || [ "$$SYSTEM" = 1 ]; then scripts/system-parts; fi
	@scripts/setup
	@$(MAKE) --no-print-directory lint
	@if [ -n "$(PYTEST_ARGS)" ]; then .venv/bin/pytest -m "not soak" $(PYTEST_ARGS); \
	else $(MAKE) --no-print-directory all-tests; fi

# What measures time has the machine to itself; all else shares its cores.
all-tests:
	@.venv/bin/pytest -m "not soak" -n logical --dist loadfile --ignore=tests/e2e --ignore=tests/load/test_oracle.py
	@.venv/bin/pytest -m "not soak" tests/load/test_oracle.py tests/e2e

soak: setup ## the full form of each claim; writes docs/evidence/
	@ISOLINE_EVIDENCE=docs/evidence .venv/bin/pytest -m soak $(PYTEST_ARGS)

lint: ## ruff and mypy
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

docs: setup ## write the generated pages
	@.venv/bin/isoline reference

bench: setup ## measurements beside a named alternative (benchmarks/README.md)
	@for script in benchmarks/*.py; do .venv/bin/python "$$script" || exit; done

clean: ## remove .venv, tool environments and caches; results and weights stay
	rm -rf .venv .isoline/uv .isoline/envs .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
