"""Tests of the Kubernetes files in examples/orchestration against the schemas of Kubernetes and of both operators."""

from __future__ import annotations

import copy
import importlib
import urllib.request
from typing import Any

import jsonschema
import pytest
import yaml
from fakes import ROOT
from missing import missing

FOLDER = ROOT / "examples/orchestration"
#: File of each operator, and where its custom resource definition is published.
OPERATORS = {
    "kubeflow-spark-application.yaml": "https://raw.githubusercontent.com/kubeflow/spark-operator/v2.5.1/config/crd/bases/"
    "sparkoperator.k8s.io_sparkapplications.yaml",
    "apache-spark-application.yaml": "https://raw.githubusercontent.com/apache/spark-kubernetes-operator/0.8.0/"
    "build-tools/helm/spark-kubernetes-operator/crds/sparkapplications.spark.apache.org-v1.yaml",
}


def document(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def closed(schema: Any) -> Any:
    """Return a copy of the schema that rejects unknown fields, which Kubernetes would drop."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def schema_of(address: str, version: str) -> Any:
    """Download a custom resource definition, and return the schema of its spec."""
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            definition = yaml.load(answer.read(), yaml.CSafeLoader)
    except OSError as error:
        # Not an error on CI, which may have no access to this server.
        pytest.skip(f"cannot download {address}: {error}")
    [found] = [one for one in definition["spec"]["versions"] if one["name"] == version]
    return closed(found["schema"]["openAPIV3Schema"]["properties"]["spec"])


@pytest.mark.parametrize("name", OPERATORS)
def test_the_application_is_valid_for_its_operator(name: str) -> None:
    """The definition of the operator's resource accepts the file, and rejects an unknown field."""
    application = document(name)
    schema = schema_of(OPERATORS[name], application["apiVersion"].partition("/")[2])
    jsonschema.validate(application["spec"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**application["spec"], "unknownField": 1}, schema)


@pytest.mark.parametrize("name", ["kubeflow-spark-application.yaml", "../kubernetes/spark-application.yaml"])
def test_the_application_is_valid_for_kubeflow_s_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models that Kubeflow generates from its API keep every field of the file."""
    if not (ROOT / ".tools/operators/stamp").exists():
        missing("no models of the operator: run `make operators`")
    monkeypatch.syspath_prepend(str(ROOT / ".tools/operators"))
    models = importlib.import_module("kubeflow_spark_api.models")
    application = document(name)
    assert models.SparkV1beta2SparkApplication.from_dict(application).to_dict() == application
    wrong = copy.deepcopy(application)
    wrong["spec"]["restartPolicy"]["onFailureRetries"] = "never"
    with pytest.raises(ValueError, match="onFailureRetries"):
        models.SparkV1beta2SparkApplication.from_dict(wrong)
    wrong = copy.deepcopy(application)
    wrong["spec"]["driver"]["unknownField"] = 1
    assert models.SparkV1beta2SparkApplication.from_dict(wrong).to_dict() != wrong


def pod_of(name: str) -> dict[str, Any]:
    spec = document(name)["spec"]
    if "podTemplateSpec" in spec.get("driverSpec", {}):
        found: dict[str, Any] = spec["driverSpec"]["podTemplateSpec"]["spec"]
    else:
        found = spec["driver"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_the_driver_s_pod_template_is_valid(name: str) -> None:
    """Spark finds the driver's container by its name, and Kubernetes accepts the fields of the pod template."""
    import kubernetes_validate  # takes seconds, so collection does not import it

    spec = pod_of(name)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": spec}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    [container] = spec["containers"]
    assert container["name"] == "spark-kubernetes-driver"
    # The reporter writes to Kubernetes' default path.
    assert "terminationMessagePath" not in container


def test_the_job_without_an_operator_is_valid() -> None:
    import kubernetes_validate  # takes seconds, so collection does not import it

    job = document("rerun-job.yaml")
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["containerName"] == container["name"]
    from spark_events.cli.main import argument_parser

    chosen = argument_parser().parse_args([*container["command"][1:], *container["args"]])
    assert chosen.retry == (3, 60.0)
    assert chosen.command[1] == "/opt/spark/bin/spark-submit"


@pytest.mark.parametrize("name", OPERATORS)
def test_the_settings_of_the_application_are_valid(name: str) -> None:
    from spark_events.cli.arguments import Configuration
    from spark_events.dispatch.pipeline_plan import read

    settings = document(name)["spec"]["sparkConf"]
    given = Configuration(name, {}, {key.removeprefix("spark."): value for key, value in settings.items()})
    assert read(given.settings()).disabled == {}
