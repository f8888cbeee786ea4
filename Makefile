# Every verb of working on Mainspring. Needs Python >= 3.11, make and git; everything else is installed into .venv.

SHELL := /bin/sh
BIN := .venv/bin
PYTEST_ARGS ?=
ARGS ?=
.DEFAULT_GOAL := help
.PHONY: help dev test test-engines test-random fuzz check lint types layers words format bench faults soak simulate model teeth test-browser screenshots requirements docs clients lock assets install install-dev install-system helm kubernetes vault clean

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

dev: install ## start everything on this machine: database, scheduler, worker, web UI (ARGS="..." passes options)
	@# No shell in between: Ctrl-C and SIGTERM reach the server itself, which then stops cleanly and exits with 0.
	@exec $(BIN)/mainspring dev $(ARGS)

test: check install-system ## check, then every test (PYTEST_ARGS="..." passes options)
	@# A module's tests stay in one process, so that they can share that module's database.
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

check: lint types layers words ## lint, format, types, import layers, vocabulary

lint: install-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: install-dev
	@$(BIN)/mypy

layers: install-dev
	@$(BIN)/lint-imports --no-cache --no-logo

words: install-dev
	@$(BIN)/python -m tools.source_rules
	@$(BIN)/python -m tools.prose_rules

format: install-dev ## rewrite the code in the house format
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

bench: install-dev ## measure what the documentation claims (ARGS="name" for one)
	@for script in benchmarks/$(or $(ARGS),[a-z]*).py; do \
		case "$$script" in benchmarks/harness.py|benchmarks/load.py|benchmarks/seed*.py|benchmarks/read_load.py|benchmarks/simulated.py) continue;; esac; \
		[ -f "$$script" ] || { echo "no benchmark $$script"; exit 1; }; \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

faults: install-dev ## tests that kill, cut and freeze things, in their long form (F=F4: one fault); writes docs/reliability.md
	@mkdir -p build && rm -f build/faults.jsonl
	@FAULT_FIGURES=$(CURDIR)/build/faults.jsonl FAULT_ROUNDS=$(or $(ROUNDS),10) ENGINE_ROUNDS=1 SOAK_SECONDS=45 RACE_SECONDS=$(or $(SECONDS),120) \
		TEST_SEED=$${TEST_SEED:-random} $(BIN)/python -m pytest -s -m fault $(if $(F),--fault $(F)) $(PYTEST_ARGS)
	@$(BIN)/python -m tools.reliability build/faults.jsonl

soak: install-dev ## three schedulers, four workers and two api processes, harmed at random (SECONDS=3600; TEST_SEED=... repeats a run)
	@SOAK_SECONDS=$(or $(SECONDS),3600) TEST_SEED=$${TEST_SEED:-random} $(BIN)/python -m pytest -s -q tests/faults/test_soak.py \
		-o faulthandler_timeout=0 $(PYTEST_ARGS)

simulate: install-dev ## search seeds of the simulated cluster for a broken guarantee (SECONDS=600; SEED=... repeats one)
	@SIMULATE_SEED=$(SEED) SIMULATE_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest -s -q tests/simulation \
		-k no_other_seed -o faulthandler_timeout=0 $(PYTEST_ARGS)

test-engines: install-dev install-system ## engines in the long form: each harmed in every way under load (ROUNDS=3: more often)
	@ENGINE_ROUNDS=$(or $(ROUNDS),1) $(BIN)/python -m pytest -s tests/backends tests/faults/test_engines.py $(PYTEST_ARGS)

model: install-dev ## check the model of the protocols with two faults, and print what each missing guard leads to
	@$(BIN)/python -m tools.model

teeth: install-dev ## plant bugs in a copy of the tree, one at a time: tests must catch each (ARGS="part of a name" for some)
	@$(BIN)/python -m tools.teeth $(ARGS)

test-random: install-dev ## property tests with many random examples; prints its seed (TEST_SEED=... repeats a run)
	@MAINSPRING_LONG=1 TEST_SEED=$${TEST_SEED:-random} $(BIN)/python -m pytest -n 2 --dist loadfile tests/domain tests/scheduler tests/runs tests/test_*.py $(PYTEST_ARGS)

fuzz: install-dev ## search parsers and endpoints for superlinear cost (SECONDS=3600; TEST_SEED=... repeats a run)
	@FUZZ_SECONDS=$(or $(SECONDS),3600) TEST_SEED=$${TEST_SEED:-random} $(BIN)/python -m pytest -s tests/fuzz -o faulthandler_timeout=0 $(PYTEST_ARGS)

test-browser: install-dev install-system ## every page in a real browser: all widths, light and dark, and the first five minutes
	@BROWSER_WALK=long $(BIN)/python -m pytest tests/browser -o faulthandler_timeout=0 $(PYTEST_ARGS)

screenshots: install-dev install-system ## pictures of every page into docs/images
	@$(BIN)/python -m tools.screenshots

requirements: install-dev ## which requirements a passing test of the last run proves
	@$(BIN)/python -m tools.requirement_report

docs: install-dev ## write the reference pages from the code, build the site into build/docs, and check its links
	@$(BIN)/python -m tools.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python -m pytest -q tests/meta/test_documentation.py

clients: install-dev ## write the TypeScript and Go clients from the OpenAPI document
	@$(BIN)/python -m tools.clients

lock: ## resolve the dependencies again and rewrite the lock files
	@sh tools/lock.sh

assets: ## fetch what the web UI uses of others, by lock file (needs npm)
	@sh tools/bootstrap.sh runtime
	@$(BIN)/python -m tools.assets

install:
	@sh tools/bootstrap.sh runtime
	@$(BIN)/python -m tools.assets --if-possible

install-dev:
	@sh tools/bootstrap.sh dev
	@$(BIN)/python -m tools.assets --if-possible

install-system: ## a container engine, bubblewrap, a browser and engines, for the tests that need them (root on Debian)
	@sh tools/system.sh
	@sh tools/engines.sh

helm: ## build Helm, for the test that compares its rendering of the chart (minutes; needs Go)
	@sh tools/engines.sh helm

kubernetes: ## build a Kubernetes API server and kwok, for the tests of pods (a quarter of an hour; needs Go)
	@sh tools/engines.sh kubernetes

vault: ## build HashiCorp Vault, for the tests that read secrets from it (half an hour on two cores; needs Go)
	@sh tools/engines.sh vault

clean: ## remove everything that was installed, built or cached (keeps .mainspring)
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
