# make lab | test | test-full | test-processors | check | format | reproduce | bench | gpu-check. Everything runs in .venv, made on first use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: lab test test-full test-processors check format reproduce bench gpu-check

lab: .venv/runtime
	$(BIN)/python -m lab

# Side by side what can be, one thread each; two at a time what waits for processes; alone what takes times or
# uses a browser, which keeps both cores of a small machine busy.
test: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore tests/processes --ignore tests/alone -n logical --maxprocesses 4
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest tests/processes -n 2 --dist worksteal
	$(BIN)/python -m pytest tests/alone

test-full: .venv/dev
	$(BIN)/python -m pytest -m "full or not full" --timeout 3600
	$(MAKE) test-processors

# What a processor's own way of adding could decide, as one without AVX-512 computes it and as one without AVX.
PROPERTIES := $(addsuffix .py,$(addprefix tests/test_,circuits_capture circuits_induction circuits_interventions linear \
	models positions probe_attention reference step training))
ALIKE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PROPERTIES) -n logical --maxprocesses 4
test-processors: .venv/dev
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 $(ALIKE)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 $(ALIKE)

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: .venv/runtime
	$(BIN)/python -m engine reproduce

# make bench PEER=DIR measures a checkout of nanoGPT as well.
bench: .venv/runtime
	$(BIN)/python -m engine bench train $(if $(PEER),--peer "$(PEER)")
	$(BIN)/python -m engine bench sweep

# What a machine with an accelerator has to show, within ten minutes; OUT is where the figures go, PEER as above.
OUT ?= gpu-check.json
gpu-check: .venv/runtime
	$(BIN)/python -m engine bench gpu-check --out "$(OUT)" $(if $(PEER),--peer "$(PEER)")

# The stamps are newer than the requirement files once pip has finished, so a changed pin installs again.
.venv/runtime: requirements.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Attention Lab needs Python 3.11 or newer; this is %d.%d. Try: make lab PYTHON=python3.11" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -r requirements.txt -e .
	@touch $@

.venv/dev: requirements.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Attention Lab needs Python 3.11 or newer; this is %d.%d. Try: make test PYTHON=python3.11" % v[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -r requirements-dev.txt -e .
	@touch $@ .venv/runtime
