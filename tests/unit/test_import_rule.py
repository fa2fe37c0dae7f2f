"""Tests of the import rule: imports point in one direction, and have no cycles and no unneeded modules."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import spark_events

pytestmark = pytest.mark.no_cover

PACKAGE = Path(spark_events.__file__).parent
# For each part, a subpackage or top-level module: the parts that it may import.
LEAVES = {"event", "errors", "config", "clocks", "failures", "loops", "_version"}
ALLOWED = {
    "event": {"errors"},
    "errors": set(),
    "config": {"errors"},
    "clocks": set(),
    "failures": set(),
    "loops": set(),
    "_version": set(),
    "jars": {"errors"},
    "records": LEAVES,
    "sql": set(),
    "reporters": LEAVES | {"sql"},
    "enrichment": LEAVES,
    "translate": LEAVES | {"records"},
    "dispatch": LEAVES | {"sql", "records", "translate", "reporters"},
}
ALLOWED["report"] = LEAVES | {"sql", "records", "translate", "reporters"}
ALLOWED["follow"] = LEAVES | {"records", "translate"}
ALLOWED["watch"] = ALLOWED["dispatch"] | {"dispatch"}
ALLOWED["sidecar"] = ALLOWED["watch"] | {"watch"}
ALLOWED["stream"] = ALLOWED["sidecar"] | {"sidecar", "jars", "report"}
ALLOWED["fleet"] = ALLOWED["dispatch"] | {"dispatch"}
ALLOWED["cli"] = ALLOWED["stream"] | {"stream", "follow"}
# The facade imports every part, because it exports the names that users need. A test below verifies that its import is
# fast.
ALLOWED["__init__"] = LEAVES | {"reporters", "enrichment", "stream", "fleet"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(source: str, module: Path = PACKAGE / "__init__.py") -> set[str]:
    """Return the parts of the package that a source file imports, at top level or in functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import; write the whole name"
            whole = node.module or ""
            names = [f"{whole}.{alias.name}" for alias in node.names] if whole == "spark_events" else [whole]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == "spark_events":
                part = rest.partition(".")[0] or "__init__"
                found.add(part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else "__init__")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_in_one_direction(module: Path) -> None:
    """Each subpackage or top-level module imports only those that ``ALLOWED`` permits."""
    part = part_of(module)
    assert part in ALLOWED, f"{part} has no place in the order yet: give it one here and in the design"
    wrong = imports_of(module.read_text(encoding="utf-8"), module) - ALLOWED[part] - {part}
    assert not wrong, f"{module.relative_to(PACKAGE.parent)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("import os, spark_events.dispatch.mailbox", {"dispatch"}),
        ("from spark_events.cli import main", {"cli"}),
        ("from spark_events import config, Event", {"config", "__init__"}),
        ("from spark_events.sidecar import main as m", {"sidecar"}),
        ("def f():\n    import spark_events.watch", {"watch"}),
        ("import spark_events", {"__init__"}),
        ("import spark_events_other", set()),
    ],
)
def test_the_rule_detects_every_form_of_import(source: str, parts: set[str]) -> None:
    """Control: the check recognizes all forms of import statements."""
    assert imports_of(source) == parts


# The packages that each package of the enrichment may import, grouped by process.
ROOMS: dict[str, set[str]] = {"engine": set(), "worker": {"engine"}, "driver": {"engine", "worker"}}
ROOMS["api"] = {"engine", "worker", "driver"}


@pytest.mark.parametrize("room", ROOMS)
def test_enrichment_packages_import_in_one_direction(room: str) -> None:
    """The worker code of enrichment does not import the driver code. The engine imports neither of them."""
    package = PACKAGE / "enrichment"
    for module in sorted((package / room).rglob("*.py")):
        source = module.read_text(encoding="utf-8")
        wrong = {other for other in ROOMS if f"spark_events.enrichment.{other}." in source} - ROOMS[room] - {room}
        assert not wrong, f"{module.relative_to(package)} imports {', '.join(sorted(wrong))}"
        if room in {"engine", "worker"}:
            heads = {name for node in ast.parse(source).body for name in modules_in_statement(node)}
            assert "pyspark" not in heads, module


def test_no_two_classes_share_a_name() -> None:
    found: dict[str, list[Path]] = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module.relative_to(PACKAGE))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def modules_in_statement(node: ast.stmt) -> set[str]:
    """Return the top-level packages that a statement imports."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return {name.partition(".")[0] for name in names}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def cycle_in(sources: dict[str, str]) -> set[str]:
    """Return the modules of an import cycle, or an empty result if there is no cycle."""
    needs: dict[str, set[str]] = {}
    for module, source in sources.items():
        named = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    named.add(whole if whole in sources else node.module or "")
        needs[module] = named & sources.keys() - {module}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        return set(error.args[1])
    return set()


def test_no_import_cycles() -> None:
    """The package has no import cycles, including imports in functions and imports for type checkers."""
    assert cycle_in({module_of(path): path.read_text(encoding="utf-8") for path in MODULES}) == set()


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        ({"p.a": "import p.b", "p.b": "import p.c", "p.c": ""}, set()),
        ({"p.a": "from p import b, x", "p.b": "def f():\n    from p.a import x"}, {"p.a", "p.b"}),
        ({"p.a": "if TYPE_CHECKING:\n    import p.b", "p.b": "from p.a import x"}, {"p.a", "p.b"}),
    ],
)
def test_the_rule_detects_every_cycle(sources: dict[str, str], circle: set[str]) -> None:
    """Control: the check detects cycles of imports in functions and for type checkers. A chain is not a cycle."""
    assert cycle_in(sources) == circle


def modules_after(statement: str) -> set[str]:
    """Run a statement in a new Python process, and return the names in its sys.modules."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(json.loads(done.stdout))


FOREIGN = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpc", "opentelemetry", "sqlalchemy", "httpx", "requests"}
FOREIGN |= {"psycopg", "confluent_kafka", "duckdb", "rich"}
OTHER_REPORTERS = {f"spark_events.reporters.{path.stem}" for path in (PACKAGE / "reporters").iterdir()} - {
    f"spark_events.reporters.{name}"
    for name in ("__init__", "__pycache__", "reporter", "reporter_types", "log_reporter")
}


def test_the_sidecar_imports_neither_spark_nor_reporter_libraries() -> None:
    """The sidecar imports only configured reporters and the default log reporter."""
    loaded = modules_after("import spark_events.sidecar.main")
    assert "spark_events.sidecar.main" in loaded
    assert {name.partition(".")[0] for name in loaded} & FOREIGN == set()
    assert loaded & OTHER_REPORTERS == set()


def test_building_a_pipeline_imports_only_configured_reporters() -> None:
    loaded = modules_after(
        "from spark_events.config import Settings\nfrom spark_events.dispatch.pipeline import build\n"
        "build(Settings.of({'events.reporter.a.type': 'file', 'events.reporter.a.path': 'x'}))"
    )
    assert loaded & OTHER_REPORTERS == {"spark_events.reporters.file"}


def test_workers_import_only_modules_of_every_executor() -> None:
    """Workers import only the standard library and pyarrow, because executors lack other dependencies."""
    loaded = modules_after(
        "import spark_events.enrichment.worker.map_in_arrow, spark_events.enrichment.worker.partition"
    )
    assert {name.partition(".")[0] for name in loaded} & (
        FOREIGN - {"pyarrow", "numpy"} | {"tenacity", "msgspec"}
    ) == set()


def test_the_facade_imports_no_spark() -> None:
    """`import spark_events` works without PySpark."""
    loaded = modules_after("import spark_events")
    assert {name.partition(".")[0] for name in loaded} & FOREIGN == set()


def test_the_facade_has_a_sorted_and_complete_all() -> None:
    assert spark_events.__all__ == sorted(spark_events.__all__)
    assert all(hasattr(spark_events, name) for name in spark_events.__all__)
