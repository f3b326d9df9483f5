# The environment is .venv; both commands below create it from nothing and reuse it afterwards.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test test-slow gpu-test demo docs dist-test lint types format clean

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once: about 1 GB of packages, 2 to 6 minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch==2.13.0 hatchling editables
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

test: lint types $(READY)  ## Lint, types, tests and doctests.
	$(BIN)/python -m pytest -q -n auto -m "not slow"

test-slow: $(READY)  ## The long forms: kills, damage, fuzzing, injection, simulations.
	$(BIN)/python -m pytest -q -n auto -m "slow or attack"

gpu-test:  ## The kernels on a GPU, with the Python that has torch and Triton for it.
	PYTHONPATH=src $(PYTHON) -m pytest -q tests/kernels tests/losses/test_exact.py tests/training/test_graphs.py tests/training/test_fusing.py tests/training/test_fixed_order.py tests/training/test_checkpoint.py tests/training/test_evaluation.py tests/training/test_processes.py tests/training/test_adversarial.py

demo: $(READY)  ## The main job on its embedded default.
	$(BIN)/softf1 demo

docs: $(READY)  ## The documentation as a site, in site/; a warning is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist-test: $(READY)  ## Wheel and sdist, tried in empty environments with the oldest and newest versions.
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt build twine hatchling
	BUILD=$(BIN)/python .ci/dist-test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site
