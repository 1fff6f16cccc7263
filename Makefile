# Everything runs from .venv, which each target completes as far as it needs it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.run-ready
QUICK_READY := $(VENV)/.quick-ready
TEST_READY := $(VENV)/.test-ready

# The classes that parameter counts are compared with. torch is named by its bare version,
# so that a build for processors alone is taken where the package index offers one.
TORCH := torch==2.13.0
CLASSES := transformers==5.23.0 peft==0.21.2 accelerate==1.15.0 numpy

# Packed bases and more optimizers, beside what .venv has: in it they would change which ways peft takes.
LIBRARIES := bitsandbytes==0.50.2 torchao==0.18.0 lion-pytorch==0.2.5
MORE := $(VENV)/more
MORE_READY := $(MORE)/.ready

# What cannot even be imported without torch.
WITHOUT_TORCH := $(addprefix --ignore=src/fullstep/,resume probing lab/program lab/trace/worker lab/drill/worker lab/link/worker) \
	$(addprefix --ignore=tests/,resume probing lab/program lab/trace/worker lab/drill/worker lab/link/worker lab/small_models.py lab/stepped.py)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help plan test test-quick test-slow lint accuracy bench bench-checkpoints bench-probe bench-trace retrace docs clean

help: ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Byte code is written ahead, so that the first start is quick also where Python is told to write none.
$(RUN_READY): pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

$(QUICK_READY): pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[test]'
	$(BIN)/python -m compileall -q src
	@touch $@ $(RUN_READY)

$(TEST_READY): pyproject.toml Makefile | $(BIN)/python
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[test,lab]' $(TORCH) $(CLASSES)
	$(BIN)/python -m compileall -q src
	@touch $@ $(QUICK_READY) $(RUN_READY)

$(MORE_READY): $(TEST_READY)
	$(BIN)/python -m venv $(MORE)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $(MORE)/beside.pth
	mv $(MORE)/beside.pth "$$($(MORE)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	$(MORE)/bin/python -m pip install --quiet $(LIBRARIES)
	@touch $@

plan: $(RUN_READY) ## the main job on an example: Llama-3.1-8B, full fine-tuning, eight GPUs of 80 GB
	$(BIN)/fullstep plan examples/llama-8b-full.toml

lint: $(QUICK_READY) ## style, types, and that imports go down only
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy validation tools benchmarks
	$(BIN)/lint-imports --no-logo

test: $(TEST_READY) lint ## all checks and tests (what continuous integration runs)
	$(BIN)/pytest

test-quick: $(QUICK_READY) ## the tests that need neither torch nor transformers
	$(BIN)/pytest -m 'not real_classes' $(WITHOUT_TORCH)

test-slow: $(TEST_READY) $(MORE_READY) ## a deep search for broken invariants, collectives against the clock, launch files against the tools: minutes
	EXAMPLES=2500 $(BIN)/pytest tests/physics/test_invariants.py
	$(BIN)/pytest tests/physics/network/link/slow_times.py
	$(BIN)/pytest tests/formats/slow_launch.py
	$(BIN)/pytest tests/lab/drill/slow_drill.py
	$(BIN)/pytest tests/lab/probe/command/slow_trainings.py
	$(BIN)/pytest tests/lab/probe/command/slow_trl.py
	$(BIN)/pytest tests/lab/probe/slow_probe.py tests/lab/probe/slow_compiled.py
	$(MORE)/bin/python -m pytest tests/lab/program/slow_optimizers.py tests/lab/probe/slow_packed.py
	$(BIN)/pytest tests/lab/trace/worker/slow_full_depth.py
	$(BIN)/pytest tests/resume/slow_kills.py
	$(BIN)/pytest tests/resume/slow_trainer.py tests/resume/slow_sigterm.py
	$(BIN)/pytest tests/physics/checkpointing/slow_real_saves.py

accuracy: $(RUN_READY) ## score the estimates against published measurements and rewrite the tables in the docs
	$(BIN)/python validation/accuracy.py

bench: $(RUN_READY) ## speed and memory of fullstep itself
	@$(BIN)/python -m compileall -q src
	$(BIN)/python benchmarks/run.py

bench-checkpoints: $(TEST_READY) ## saving and restoring beside what the same disk gives to plain writers and readers
	@$(BIN)/python benchmarks/checkpoints.py

bench-probe: $(TEST_READY) ## what a probe costs the training that it watches
	@$(BIN)/python benchmarks/probe.py

bench-trace: $(TEST_READY) ## speed and memory of the tracer
	@$(BIN)/python benchmarks/trace.py

retrace: $(TEST_READY) ## trace published cases, the grid and every model class anew: an hour
	$(BIN)/python validation/traced_cases.py
	$(BIN)/python validation/traces.py --retrace
	$(BIN)/python tools/write_trace_coverage.py

docs: $(RUN_READY) ## rewrite the pages that are generated from the code
	$(BIN)/python tools/write_docs.py

clean: ## remove .venv and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
