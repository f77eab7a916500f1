# make setup    a virtual environment in .venv, from the lock, with .venv/bin/harborlight
# make demo     a Terminal-Bench-sized run, replayed and served
# make test     linters, types, every dashboard drawn and all tests (installs missing Debian packages
#               as root)
# make lint     linters and types only
# make lock     requirements.lock again, from pyproject.toml (UPGRADE=1: newest versions)
# make docs     the table of metrics in README.md, from the catalogue
# make dashboards    dashboards/generated again, from the code in dashboards
# make alerts    alerts/generated and alerts/README.md again, from the code in alerts (TIME_SCALE=S
#                INTO=DIR: rules for a replay that is S times faster than life, elsewhere)
# make pictures    the README's pictures again, from a replayed run
# make preview    pictures of the dashboards at several moments of a replayed run, and what is wrong
#                 with them (ARGS=--help: how to draw less, and again without a replay)
# make bench    the benchmarks
# make e2e-alerts    every end-to-end test of the alerts, and how long each took to be told: half an
#                    hour (HARBORLIGHT_ALERT_REPORT: a file for that, too)
# make e2e-sglang    a real SGLang server on this machine's processor (10 GB; HARBORLIGHT_SGLANG_VENV:
#                    an environment that has it already)
# make clean    remove what the above made

BIN := .venv/bin
CODE := $(wildcard exporter tests dashboards alerts)

.PHONY: setup demo test packages lint lock docs dashboards alerts preview pictures bench e2e-alerts e2e-sglang clean

setup:
	@.ci/setup

demo: setup
	exec $(BIN)/harborlight demo

packages:
	@.ci/packages

# Where real Harbor jobs can be run, a test that needs them must not skip itself.
test: setup packages lint
	if command -v bwrap >/dev/null && [ -x $(BIN)/harbor ]; then \
	    export HARBORLIGHT_REQUIRE_REAL_HARBOR=$${HARBORLIGHT_REQUIRE_REAL_HARBOR-1}; \
	fi; \
	$(BIN)/python -m dashboards.preview --skip-if-missing && \
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)

lock: setup
	$(BIN)/uv --system-certs pip compile pyproject.toml --group dev --universal --python-version 3.12 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade) \
	    --custom-compile-command 'make lock' --quiet --output-file requirements.lock
	$(BIN)/uv --system-certs pip compile requirements-sglang.lock --no-deps --python-version 3.12 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate $(if $(UPGRADE),--upgrade) \
	    --custom-compile-command 'make lock' --quiet --output-file requirements-sglang.lock

docs: setup
	PYTHONPATH=tests $(BIN)/python -m support.readme

dashboards: setup
	$(BIN)/python -m dashboards

alerts: setup
	$(BIN)/python -m alerts $(if $(TIME_SCALE),--time-scale $(TIME_SCALE)) $(if $(INTO),--into $(INTO))

preview: setup packages
	$(BIN)/python -m dashboards.preview $(ARGS)

pictures: setup packages
	$(BIN)/python -m dashboards.preview --publish

bench: setup
	$(BIN)/python -m pytest tests/benchmarks -q -s

e2e-alerts: setup packages
	HARBORLIGHT_ALL_REPLAYS=1 $(BIN)/python -m pytest tests/end_to_end/test_alerts.py -v -s

e2e-sglang: setup packages
	[ -n "$(HARBORLIGHT_SGLANG_VENV)" ] || tests/sglang/install
	$(BIN)/python -m pytest tests/sglang -v -s

clean:
	rm -rf .venv .venv-sglang .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	rm -rf dashboards/preview/dist dashboards/preview/node_modules dashboards/preview/pictures
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
