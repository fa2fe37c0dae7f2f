"""Tests of the syntax of the LogQL queries in dashboards/, with Grafana's parser, which `make logql` downloads.

The parser runs on the Node that Playwright includes. No Loki runs the queries.
"""

from __future__ import annotations

import json
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from fakes import ROOT
from missing import missing

GRAFANA = ROOT / "dashboards" / "grafana"
PARSER = ROOT / ".tools" / "logql" / "node_modules"
_PLAYWRIGHT = find_spec("playwright")
_NODE = Path(str(_PLAYWRIGHT.origin if _PLAYWRIGHT else "playwright")).parent / "driver" / "node"
#: Values of Grafana's variables.
_VARIABLES = {"$service": "shop|till", "$__range": "24h", "$__auto": "5m"}
_PROGRAM = """
const { parser } = require("@grafana/lezer-logql");
const wrong = JSON.parse(require("fs").readFileSync(0)).map((query) => {
  const found = [];
  parser.parse(query).iterate({ enter: (node) => { if (node.type.isError) found.push(node.from); } });
  return found;
});
process.stdout.write(JSON.stringify(wrong));
"""


def queries() -> dict[str, str]:
    """Return every LogQL query by the title of its panel or rule, with Grafana's variables replaced."""
    dashboard = json.loads((GRAFANA / "json" / "spark-events-loki.json").read_text(encoding="utf-8"))
    found = {panel["title"]: target["expr"] for panel in dashboard["panels"] for target in panel["targets"]}
    found |= {f"annotation {one['name']}": one["expr"] for one in dashboard["annotations"]["list"]}
    rules = yaml.safe_load((GRAFANA / "provisioning" / "alerting" / "spark-events.yaml").read_text(encoding="utf-8"))
    parts = [(rule["title"], part["model"]) for rule in rules["groups"][0]["rules"] for part in rule["data"]]
    found |= {title: model["expr"] for title, model in parts if "expr" in model}
    return {title: re.sub(r"\$\w+", lambda name: _VARIABLES[name[0]], query) for title, query in found.items()}


@pytest.fixture(scope="module")
def parser() -> Path:
    """Return the parser's folder. If the parser is missing, skip the test; on CI, fail the test."""
    if not (PARSER.parent / "stamp").exists() or not _NODE.exists():
        missing(f"{PARSER} or {_NODE} not found: run `make logql`")
    return PARSER


def errors(parser: Path, *some: str) -> list[list[int]]:
    """Return the positions of the errors in each query."""
    done = subprocess.run(
        [_NODE, "-e", _PROGRAM],
        input=json.dumps(some),
        env={"NODE_PATH": str(parser)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[list[int]] = json.loads(done.stdout)
    return found


def test_every_query_of_the_log_is_logql(parser: Path) -> None:
    """Grafana's parser finds no error in any query of the dashboard "log" and of the alert rules."""
    titled = queries()
    assert {
        "Alarms",
        "What happened",
        "Slow stages",
        "Spark alarm in the log",
        "Silence",
        "annotation Failures",
    } <= titled.keys()
    wrong = dict(zip(titled, errors(parser, *titled.values()), strict=True))
    assert {title: found for title, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "damage", [("[24h]", ""), ("} |", "} ||"), ("unwrap ", "unwrapped "), ("sum(", "summ("), ('"shop', "shop")]
)
def test_the_parser_rejects_damaged_queries(parser: Path, damage: tuple[str, str]) -> None:
    """Control: after each kind of damage, the parser finds an error in every query that contains the damaged part."""
    titled = {title: query.replace(*damage) for title, query in queries().items() if damage[0] in query}
    assert titled
    assert all(errors(parser, *titled.values())), titled
