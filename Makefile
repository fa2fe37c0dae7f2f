# One command per task; .ci/run calls only these. `make test ARGS="-k spool -x"` hands arguments on.
.DEFAULT_GOAL := help
.PHONY: help setup environments jar broker collector connect check lint types spelling test test-matrix demo bench wheel clean

MATRIX ?= 3.5 4.0 newest
export PYTHON

# $(call in,VENV) runs a command as if VENV were activated and nothing of the caller's Spark or Python were set:
# PySpark must use its own Spark, this Python in its workers, and a JDK that is new enough.
in = env -u SPARK_HOME -u SPARK_CONF_DIR -u SPARK_DIST_CLASSPATH -u HADOOP_CONF_DIR -u PYTHONPATH -u PYTHONHOME \
	-u PYSPARK_SUBMIT_ARGS -u PYSPARK_DRIVER_PYTHON -u PYSPARK_DRIVER_PYTHON_OPTS \
	PYSPARK_PYTHON="$(CURDIR)/$(1)/bin/python" PATH="$(CURDIR)/$(1)/bin:$$PATH" \
	JAVA_HOME="$$($(1)/bin/python jvm-shim/build.py --java-home)" $(1)/bin/python

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing and build the jar; does nothing the second time
	@bash .ci/setup

environments: setup ## the same for the other versions of Spark
	@bash .ci/setup $(filter-out newest,$(MATRIX))

jar: setup ## compile the Java shim, if its sources changed
	@.venv/bin/python jvm-shim/build.py --check

broker: setup ## fetch the Kafka broker that some tests need; without it they are skipped
	@bash .ci/jars kafka

collector: setup ## build the OpenTelemetry Collector that some tests need; without it they are skipped
	@bash .ci/collector

connect: setup ## fetch the Connect server of Spark 3.5 that some tests need there; without it they are skipped
	@bash .ci/jars connect-3.5

check: lint types spelling ## everything that needs no test run: lint, types, spelling, the import rule
	$(call in,.venv) -m pytest -q tests/unit/test_import_rule.py

lint: setup ## ruff: lint and format
	$(call in,.venv) -m ruff check .
	$(call in,.venv) -m ruff format --check .

types: setup ## mypy in strict mode
	$(call in,.venv) -m mypy

spelling: setup ## codespell
	@git ls-files -z | xargs -0 .venv/bin/codespell

# Without arguments: what needs no Spark first, then Spark; module by module on two cores. A third at a time gains nothing:
# starting a Spark is work, not waiting.
test: setup ## every test, on the newest Spark
ifeq ($(ARGS),)
	$(call in,.venv) -m pytest -q -n 2 --dist loadfile -m "not spark"
	$(call in,.venv) -m pytest -q -n 2 --dist loadfile -m spark
else
	$(call in,.venv) -m pytest $(ARGS)
endif

# Without what takes minutes (`-m long`), executors that are killed, say, and what does not depend on the version of Spark
# (`-m any_spark`): the newest runs them alone.
test-matrix: $(MATRIX:%=test-on-%) ## the tests that need Spark, on 3.5, 4.0 and the newest

.PHONY: $(MATRIX:%=test-on-%)
$(MATRIX:%=test-on-%): test-on-%:
	@bash .ci/setup $*
	$(call in,$(if $(filter newest,$*),.venv,.matrix/$*)) -m pytest -q -n 2 --dist loadfile -m "spark and not long and not any_spark" $(ARGS)

demo: setup ## a streaming job that fails, and what it reports
	$(call in,.venv) examples/run_demo.py $(ARGS)

bench: setup ## measure overhead and throughput
	$(call in,.venv) -m benchmarks $(ARGS)

wheel: setup ## sdist and wheel into dist/
	$(call in,.venv) -m build --no-isolation

clean: ## remove what was built; the environments (.venv, .matrix) stay
	rm -rf dist build spark_events/jars/*.jar spark_events/jars/.building-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find spark_events tests benchmarks examples jvm-shim -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
