# One command per task; .ci/run calls only these. `make test ARGS="-k spool -x"` passes arguments to pytest.
.DEFAULT_GOAL := help
.PHONY: help setup environments jar airflow alertmanager broker browser collector dagster junit logql connect kafka-connector operators yarn peers row-level frameworks storages check lint types spelling docs imports screenshots test test-matrix demo bench changes release wheel clean

MATRIX ?= 3.5 4.0 newest
export PYTHON

# $(call in,VENV) runs a command in VENV without the caller's Spark and Python settings: PySpark must use its own Spark,
# the Python of VENV in its workers, and a JDK that is new enough. Without cached bytecode, each of the hundreds of Python
# processes that tests start would compile the package again.
in = env -u SPARK_HOME -u SPARK_CONF_DIR -u SPARK_DIST_CLASSPATH -u HADOOP_CONF_DIR -u PYTHONPATH -u PYTHONHOME -u PYTHONDONTWRITEBYTECODE \
	-u PYSPARK_SUBMIT_ARGS -u PYSPARK_DRIVER_PYTHON -u PYSPARK_DRIVER_PYTHON_OPTS \
	PYSPARK_PYTHON="$(CURDIR)/$(1)/bin/python" PATH="$(CURDIR)/$(1)/bin:$$PATH" \
	JAVA_HOME="$$($(1)/bin/python jvm-shim/build.py --java-home)" $(1)/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install missing tools and build the jar; does nothing if all is up to date
	@bash .ci/setup

# Environments are independent of each other, so `make -j` builds them in parallel.
OTHERS = $(addprefix environment-,$(filter-out newest,$(MATRIX)))
.PHONY: $(OTHERS)
environments: setup $(OTHERS) ## set up the other Spark versions as well
$(OTHERS): environment-%:
	@bash .ci/setup $*

jar: setup ## compile the Java shim if its sources changed
	@.venv/bin/python jvm-shim/build.py --check

broker: setup ## fetch the Kafka broker for the Kafka tests, which are skipped without it
	@bash .ci/jars kafka

browser: setup ## fetch Chromium for tests/report/test_page.py, which is skipped without it
	@bash .ci/browser

collector: setup ## build the OpenTelemetry Collector for the OTLP tests that are skipped without it
	@bash .ci/otelcol

airflow: setup ## install Airflow 3 and 2 for tests/spark/test_airflow.py, which is skipped without them
	@bash .ci/airflow

dagster: setup ## install Dagster for tests/spark/test_dagster.py, which is skipped without it
	@bash .ci/dagster

operators: setup ## install the Kubeflow Spark operator's models for tests/unit/test_operators.py, which is skipped without them
	@bash .ci/operators

alertmanager: ## install Alertmanager for tests/reporters/webhook/test_alerts.py, which is skipped without it
	@bash .ci/server prometheus-alertmanager

junit: setup ## fetch JUnit for the shim's own tests, which are skipped without it
	@bash .ci/jars junit

logql: setup ## fetch Grafana's parser of LogQL for tests/reporters/otlp/test_logql.py, which is skipped without it
	@bash .ci/logql

yarn: setup ## fetch the YARN cluster for tests/spark/test_yarn_endings.py, which is skipped without it
	@bash .ci/jars yarn

row-level: setup ## fetch Spark's test connector for tests/spark/test_row_level.py, which is skipped without it
	@bash .ci/jars row-level

table-formats: setup ## fetch Delta Lake and Iceberg for tests/spark/test_table_formats.py, which is skipped without them
	@bash .ci/jars table-formats-3.5
	@bash .ci/jars table-formats-4.0

kafka-connector: setup ## fetch Spark's Kafka source for each version, for tests such as tests/spark/test_lost_broker.py, which are skipped without it
	@bash .ci/jars kafka-connector
	@bash .ci/jars kafka-connector-3.5
	@bash .ci/jars kafka-connector-4.0

peers: setup ## fetch the listeners that the benchmarks `endings` and `peers` compare with, which leave them out otherwise
	@bash .ci/jars peers

storages: setup ## install servers like those of Google and Azure for tests/unit/records/test_clouds.py, which is skipped without them
	@bash .ci/storages

frameworks: setup ## fetch Daft, Ray and Flink for the benchmark `frameworks`, which leaves them out otherwise
	@bash .ci/frameworks
	@bash .ci/jars flink

connect: setup ## fetch the Connect server for the Spark 3.5 tests that are skipped without it
	@bash .ci/jars connect-3.5

check: lint types spelling docs imports ## run lint, types, spelling, the documentation site and the import rules; collect all tests

# Collecting all tests also caches their bytecode, which each process of `make test` would otherwise compile.
imports: setup ## collect all tests, check the import rules and the sizes of classes
	@mkdir -p build
	$(call in,.venv) -m pytest -q --collect-only >build/collected.txt || { cat build/collected.txt; exit 1; }
	$(call in,.venv) -m pytest -q tests/unit/test_import_rule.py tests/unit/test_module_names.py tests/unit/test_glossary_words.py tests/unit/test_class_sizes.py tests/unit/test_shim_structure.py

lint: setup ## run ruff: lint and format check
	$(call in,.venv) -m ruff check .
	$(call in,.venv) -m ruff format --check .

types: setup ## run mypy in strict mode
	$(call in,.venv) -m mypy

spelling: setup ## run codespell
	@git ls-files -z | xargs -0 .venv/bin/codespell

docs: setup ## build the documentation site into build/site; a broken link or a page without navigation is an error
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

screenshots: browser ## make the screenshots of the documentation site and of README with Chromium
	$(call in,.venv) -m website.screenshots

# Without arguments: tests without Spark first, with a coverage figure whose floor is in pyproject.toml, then tests with
# Spark. They are distributed by file to more processes than CI has cores (two), because many tests wait for time limits or
# for other processes. The order of the files is that of tests/order.py, which also requires that tests with Spark are in
# SPARK_TESTS.
WORKERS ?= 6
SPARK_WORKERS ?= 4
DISTRIBUTED = -q --dist loadfile --no-loadscope-reorder
SPARK_TESTS = tests/spark tests/faults

test: setup ## run all tests on the newest Spark
ifeq ($(ARGS),)
	$(call in,.venv) -m pytest $(DISTRIBUTED) -n $(WORKERS) -m "not spark" --cov --cov-report=term:skip-covered
	$(call in,.venv) -m pytest $(DISTRIBUTED) -n $(SPARK_WORKERS) -m spark $(SPARK_TESTS)
else
	$(call in,.venv) -m pytest $(ARGS)
endif

# Only the newest Spark runs the tests that take minutes (`long`, such as those that kill executors) and the tests that
# do not depend on the version (`any_spark`).
test-matrix: $(MATRIX:%=test-on-%) ## run the Spark tests on 3.5, 4.0 and the newest

.PHONY: $(MATRIX:%=test-on-%)
$(MATRIX:%=test-on-%): test-on-%:
	@bash .ci/setup $*
	$(call in,$(if $(filter newest,$*),.venv,.matrix/$*)) -m pytest $(DISTRIBUTED) -n $(SPARK_WORKERS) -m "spark and not long and not any_spark" $(if $(filter tests/%,$(ARGS)),,$(SPARK_TESTS)) $(ARGS)

demo: setup ## run three example jobs, one of which fails, and show their events
	$(call in,.venv) examples/run_demo.py $(ARGS)

bench: setup ## run the benchmarks (ARGS: some of them); write one table to build/bench
	$(call in,.venv) -m benchmarks $(ARGS)

# Without VERSION, print the section; with VERSION, move the files of changes/ into CHANGELOG.md.
changes: setup ## print the changes since the last release; VERSION=x.y.z writes them to CHANGELOG.md
	$(call in,.venv) -m towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

release: setup ## build sdist, wheel, Maven artifacts, checksums and SBOM into dist/, twice, and compare
	$(call in,.venv) -m release

wheel: setup ## build sdist and wheel into dist/
	$(call in,.venv) -m build --no-isolation

clean: ## remove build output; keep the environments (.venv, .matrix)
	rm -rf dist build spark_events/jars/*.jar spark_events/jars/.building-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	find spark_events tests benchmarks examples jvm-shim -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
