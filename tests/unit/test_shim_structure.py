"""Tests of the Java shim's structure: imports point in one direction, classes stay small, and priorities only order."""

from __future__ import annotations

import graphlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.jars import jar_path

pytestmark = pytest.mark.no_cover

SOURCES = ROOT / "jvm-shim" / "src" / "main" / "java" / "io" / "sparkevents"
ENTRY = "(entry points)"
# For each package: the packages that it may import. The entry points are the classes of io.sparkevents itself.
ALLOWED: dict[str, set[str]] = {"config": set(), "queue": {"config"}}
ALLOWED["listener"] = {"config", "queue"}
ALLOWED["metrics"] = {"queue"}
ALLOWED["wire"] = {"config", "queue", "listener", "metrics"}
ALLOWED["sidecar"] = {"config", "queue", "listener", "metrics", "wire"}
ALLOWED["inprocess"] = {"config", "queue", "listener", "metrics", "wire"}
ALLOWED[ENTRY] = {"config", "queue", "listener", "metrics", "sidecar"}

_COMMENT_OR_TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+'""", re.DOTALL)
_NAME = re.compile(r"\bio\.sparkevents\.(\w+)")


def package_of(source: Path) -> str:
    return source.parent.name if source.parent != SOURCES else ENTRY


def packages_in(source: str) -> set[str]:
    """Return the shim's packages that a Java source names, in imports and elsewhere, but not in comments and texts."""
    code = _COMMENT_OR_TEXT.sub("", re.sub(r"^package [^;]*;", "", source))
    return {name if name[0].islower() else ENTRY for name in _NAME.findall(code)}


@pytest.mark.parametrize("source", sorted(SOURCES.rglob("*.java")), ids=lambda path: path.stem)
def test_imports_point_in_one_direction(source: Path) -> None:
    package = package_of(source)
    assert package in ALLOWED, f"{package} has no place in the order yet: give it one here and in docs/architecture.md"
    wrong = packages_in(source.read_text(encoding="utf-8")) - ALLOWED[package] - {package}
    assert not wrong, f"{source.name} of {package} imports {', '.join(sorted(wrong))}"


def test_the_order_has_no_cycle() -> None:
    assert set(graphlib.TopologicalSorter(ALLOWED).static_order()) >= set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("package io.sparkevents.queue;\nimport io.sparkevents.config.Settings;", {"config"}),
        ("import static io.sparkevents.queue.Record.write;", {"queue"}),
        ("import io.sparkevents.EventsListener;", {ENTRY}),
        ("class A { io.sparkevents.sidecar.Sidecar sidecar; }", {"sidecar"}),
        ("/** {@link io.sparkevents.wire.DriverLog} */ class A {} // io.sparkevents.wire", set()),
        (
            """class A { char c = '"'; String s = "// io.sparkevents.Events"; io.sparkevents.wire.DriverLog l; }""",
            {"wire"},
        ),
        ("import io.sparkeventsother.A;", set()),
    ],
)
def test_the_rule_detects_every_form_of_import(source: str, packages: set[str]) -> None:
    assert packages_in(source) == packages


def test_only_the_queue_reads_priorities() -> None:
    """A priority decides what a full queue drops. Other code asks for the fact itself, such as a failure."""
    readers = [path for path in SOURCES.rglob("*.java") if re.search(r"\.priority\b", path.read_text(encoding="utf-8"))]
    assert {package_of(path) for path in readers} == {"queue"}


MAX_ATTRIBUTES, MAX_METHODS = 15, 20
#: Words with which the Javadoc of a larger class begins its reason.
REASON = "This class is large because"


@dataclass
class Shape:
    """Attributes (fields that are not static and final) and methods of a class, without those that javac adds."""

    attributes: int = 0
    methods: int = 0


def shapes(listing: str) -> dict[str, Shape]:
    """Parse the output of ``javap -p``: the shape of each class by its binary name."""
    found: dict[str, Shape] = {}
    for line in listing.splitlines():
        if declared := re.match(r"(?:\w+ )*(?:class|interface|@interface) ([\w.$]+)", line):
            shape = found[declared[1]] = Shape()
        elif member := re.match(r"  .*?([\w.$]+)(\(.*)?;$", line):
            name, parameters = member.groups()
            is_made_by_javac = "$" in name or name in {"values", "valueOf"}
            if parameters is None:
                shape.attributes += not is_made_by_javac and not re.search(r"\bstatic final\b", line)
            else:
                shape.methods += not is_made_by_javac and name not in found
    return found


def test_no_class_is_large() -> None:
    """No class has more than 15 attributes or 20 public and private methods, unless its Javadoc says why."""
    with zipfile.ZipFile(jar_path()) as jar:
        names = [name.removesuffix(".class") for name in jar.namelist() if name.endswith(".class")]
    javap = [str(java_home() / "bin" / "javap"), "-p", "-cp", str(jar_path()), *names]
    found = shapes(subprocess.run(javap, check=True, capture_output=True, text=True).stdout)
    assert len(found) == len(names)
    large = {
        name: shape
        for name, shape in found.items()
        if (shape.attributes > MAX_ATTRIBUTES or shape.methods > MAX_METHODS) and REASON not in javadoc_of(name)
    }
    assert not large


def java_home() -> Path:
    """Return the home of the JDK that builds the jar."""
    command: list[str | Path] = [sys.executable, ROOT / "jvm-shim" / "build.py", "--java-home"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def javadoc_of(name: str) -> str:
    """Return the Javadoc of a class by its binary name, on one line."""
    outer, *nested = name.removeprefix("io.sparkevents.").split("$")
    source = Path(SOURCES, *outer.split(".")).with_suffix(".java").read_text(encoding="utf-8")
    simple = nested[-1] if nested else outer.rpartition(".")[2]
    found = re.search(rf"/\*\*((?:(?!\*/).)*)\*/[^/;{{]*\b(?:class|interface|enum) {simple}\b", source, re.DOTALL)
    return " ".join(re.sub(r"^\s*\*", "", found[1], flags=re.MULTILINE).split()) if found else ""


def test_javap_s_output_is_understood() -> None:
    """Control: constructors, constants, and members that javac adds do not count."""
    listing = """\
Compiled from "A.java"
public final class io.sparkevents.queue.A<T extends java.lang.Object> extends io.sparkevents.queue.B<T> {
  private static final int LIMIT;
  static int counter;
  public final java.util.function.Consumer<java.util.Map<?, ?>> sink;
  private final java.util.Map<java.lang.String, long[]> counts;
  final io.sparkevents.queue.A this$0;
  public io.sparkevents.queue.A(int) throws java.io.IOException;
  public abstract void run() throws java.lang.InterruptedException;
  private static <T> java.util.List<T> of(java.util.function.Consumer<java.util.Map<?, ?>>, int...);
  private void lambda$run$0();
  static {};
}
Compiled from "C.java"
final class io.sparkevents.queue.A$C {
  private boolean open;
}
"""
    assert shapes(listing) == {"io.sparkevents.queue.A": Shape(3, 2), "io.sparkevents.queue.A$C": Shape(1, 0)}
