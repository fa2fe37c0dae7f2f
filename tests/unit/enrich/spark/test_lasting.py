"""The digest of functions: the same in every process that runs the same program, and another for another function."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_events.enrich.plan import Plan
from spark_events.enrich.spark.lasting import lasting

ROW = StructType().add("id", "long").add("name", "string")
#: A driver's main program, and what it may give as a function.
PROGRAM = """
import contextlib, dataclasses, datetime, enum, functools, json, logging, re, threading
from pyspark.sql.types import StructType
from spark_events.enrich.plan import Plan
from spark_events.enrich.spark.lasting import lasting

LOG = logging.getLogger(__name__)
URLS = {"one": "http://one", "two": ["http://two", None, 1.5, float("nan"), 10**5000]}
NAMES = {f"name {number}" for number in range(50)}

class Tier(enum.Enum):
    GOLD = "gold"

@dataclasses.dataclass
class Settings:
    tier: Tier = Tier.GOLD
    since: datetime.date = datetime.date(2026, 1, 1)
    pattern: re.Pattern = re.compile("a+")

class Caller:
    __slots__ = ("prefix", "__weakref__")
    def __init__(self, prefix): self.prefix = prefix
    @property
    def upper(self): return self.prefix.upper()
    @staticmethod
    def plain(): return 1
    async def __call__(self, row, ctx): return {"r": self.upper}
    async def method(self, row): return {"r": super().__repr__()}

def again(row): return again(row) if row.id in {"a", "b", "c"} else helper(row)
def helper(row): return [again(row), NAMES, [name for name in URLS]]
async def of_globals(row, ctx=None, *, settings=Settings()):
    LOG.info(row)
    return helper(row)
async def prefixed(prefix, row, ctx): return {"r": prefix}
def make(held):
    async def lookup(row, ctx):
        try: return {"r": (held, (lambda: URLS)())}
        finally: pass
    return lookup
def opener(port):
    @contextlib.asynccontextmanager
    async def opened():
        yield port
    return opened

made = {
    "closure": make("prod"), "another": make("test"), "settings": make(Settings()), "a set": make(NAMES),
    "a lambda": make(lambda: 1), "a class": make(Settings), "globals": of_globals,
    "object": Caller("p"), "method": Caller("p").method, "names": make(frozenset(NAMES)),
    "partial": functools.partial(prefixed, "p"),
}
row = StructType().add("id", "long")
found = {name: lasting(Plan(fn), row, ["id"]) for name, fn in made.items()}
found |= {f"port {port}": lasting(Plan(of_globals, resource=opener(port)), row, ["id"]) for port in (1, 2)}
print(json.dumps(found))
"""


def run(file: Path, seed: str) -> dict[str, str]:
    file.parent.mkdir()
    file.write_text(PROGRAM, encoding="utf-8")
    variables = {**os.environ, "PYTHONHASHSEED": seed}
    told = subprocess.run([sys.executable, file], env=variables, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(told.stdout)
    return found


def test_a_driver_that_is_restarted_makes_the_same_digests(tmp_path: Path) -> None:
    """With hashes of its own, and where a cluster has put the program this time; no two functions have the same."""
    first = run(tmp_path / "first" / "job.py", "1")
    assert run(tmp_path / "second" / "main.py", "2") == first
    assert len(set(first.values())) == len(first) == 13


def digest(fn: Callable[..., Any], input_cols: tuple[str, ...] = ("id", "name"), **options: Any) -> str:
    return lasting(Plan(fn, **options), ROW, input_cols)


def make(held: Any) -> Callable[..., Any]:
    async def lookup(row: Any, ctx: Any) -> Any:
        return held, row, ctx

    return lookup


class Client:
    """A resource, and one that calls."""

    def __init__(self, url: Any = "") -> None:
        self.url = url

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def __call__(self, row: Any) -> Any:
        """Never called here."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("prod", "test"),
        (1, True),
        (1, 1.0),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (["ab", "c"], ["a", "bc"]),
        (make(1), make(2)),
        (functools.partial(int, base=2), functools.partial(int, base=8)),
        (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
        ("a".join, "b".join),
        (Client("a"), Client("b")),
        (bytearray(b"a"), bytearray(b"b")),
    ],
)
def test_what_a_function_holds_makes_it_another(one: Any, other: Any) -> None:
    """By value and type, whichever way it is held."""
    for held in (make, lambda value: functools.partial(make(0), value), Client):
        assert digest(held(one)) == digest(held(one))
        assert digest(held(one)) != digest(held(other))


def test_what_holds_itself_has_a_digest() -> None:
    """And another one when something else in it differs."""

    def round_about(value: Any) -> Callable[..., Any]:
        held: list[Any] = [value]
        held.append(held)
        return make(held)

    assert digest(round_about(1)) == digest(round_about(1)) != digest(round_about(2))


def test_resources_inputs_and_equal_rows_count() -> None:
    """As in the cache."""
    fn = make(1)
    all_of_them = [
        digest(fn),
        digest(fn, ("id",)),
        digest(fn, ("name", "id")),
        digest(fn, coalesce_by=("id",)),
        digest(fn, resource=Client),
        digest(fn, resource=functools.partial(Client, "a")),
        digest(fn, resource=functools.partial(Client, "b")),
    ]
    assert len(set(all_of_them)) == len(all_of_them)
    assert digest(fn, retry=None, max_in_flight=7) == all_of_them[0]


def module(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that executors would import, as a new version of the program has it."""
    made = types.ModuleType("enrichments")
    monkeypatch.setitem(sys.modules, "enrichments", made)
    exec(text, vars(made))
    return made


def test_a_new_version_of_an_importable_function_is_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it, a function that it calls or a setting has changed; where it stands in its file does not matter."""
    text = "import threading\nLOCK = threading.Lock()\nURL = 'a'\ndef ask():\n    return URL, LOCK\n"
    text += "async def lookup(row):\n    return ask()\n"
    changed = [text.replace("'a'", "'b'"), text.replace("URL, LOCK", "LOCK, URL"), text.replace("ask()\n", "[ask()]\n")]
    first = digest(module(text, monkeypatch).lookup)
    assert digest(module("# moved\n" + text, monkeypatch).lookup) == first
    assert first not in [digest(module(other, monkeypatch).lookup) for other in changed]


def test_what_is_nested_too_deeply_is_never_the_same() -> None:
    """Called again rather than answered wrongly."""
    held: list[Any] = []
    for _ in range(100_000):
        held = [held]
    assert digest(make(held)) != digest(make(held))


def test_what_cannot_travel_is_the_executor_s_own() -> None:
    """It is refused elsewhere, where it must travel."""
    assert digest(make(threading.Lock())) == digest(make(threading.Lock()))
