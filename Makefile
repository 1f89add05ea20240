# Two commands matter: `make demo` and `make test`. Both make .venv when it is not there.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check format bench clean

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -e '.[dev,kernels,clip,video]'
	touch $@

demo: .venv/installed
	$(BIN)/strata demo --direct

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed
	$(BIN)/python -m tests.benchmarks.pipeline

clean:
	rm -rf .venv store runs
