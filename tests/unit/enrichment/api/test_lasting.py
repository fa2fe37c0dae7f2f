"""The digest of functions: the same in every process that runs the same program, and another for another function."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_events.enrichment.api.lasting import lasting
from spark_events.enrichment.api.libraries import is_library
from spark_events.enrichment.plan import Plan, Retry

ROW = StructType().add("id", "long").add("name", "string")
#: A driver's main program, and what it may give as a function.
PROGRAM = """
import contextlib, dataclasses, datetime, enum, functools, json, logging, re, threading
from pyspark.sql.types import StructType
from spark_events.enrichment.plan import Plan, Retry
from spark_events.enrichment.api.lasting import lasting

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
found = {name: lasting(Plan(fn), row, ["id"], ["id"]) for name, fn in made.items()}
found |= {f"port {port}": lasting(Plan(of_globals, resource=opener(port)), row, ["id"], ["id"]) for port in (1, 2)}
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


def digest(
    fn: Callable[..., Any],
    input_cols: tuple[str, ...] = ("id", "name"),
    identity: tuple[str, ...] = ("id",),
    **options: Any,
) -> str:
    return lasting(Plan(fn, **options), ROW, input_cols, identity)


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
    """As in the cache; and the columns that tell rows apart, and what is taken for an answer."""
    fn = make(1)
    empty, none = (Retry(on_result=again) for again in (lambda result: not result, lambda result: result is None))
    all_of_them = [
        digest(fn),
        digest(fn, ("id",)),
        digest(fn, ("name", "id")),
        digest(fn, coalesce_by=("id",)),
        digest(fn, resource=Client),
        digest(fn, resource=functools.partial(Client, "a")),
        digest(fn, resource=functools.partial(Client, "b")),
        digest(fn, identity=("name",)),
        digest(fn, retry=empty),
        digest(fn, retry=none),
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


#: A user's modules beside the main program; ``VERSION`` is what changes.
MODULES = {
    "helper.py": """
import dataclasses, threading
import library
LOCK = threading.Lock()
URL = "VERSION"
def ask(): return "VERSION", LOCK
def again(): return again() or other()
def other(): return again(), URL
class Base:
    def get(self): return "VERSION"
class Client(Base):
    def __init__(self): self.lock, self.url = threading.Lock(), library.URL
@dataclasses.dataclass
class Settings:
    url: str = "VERSION"
""",
    "pkg/__init__.py": "",
    "pkg/util.py": "def ask(): return 'VERSION'",
    "pkg/alone.py": "from . import util",
    "pkg/fns.py": """
import helper
from pkg import util
from pkg.util import ask
async def named(row): return {"r": ask()}
async def in_the_package(row): return {"r": util.ask()}
async def beside_it(row): return {"r": helper.ask()}
async def relative(row):
    from .alone import util
    return util.ask()
""",
    "site-packages/library.py": "URL = 'VERSION'\ndef ask(): return 'VERSION'",
}
USER = """
import json, sys
sys.path[:0] = sys.argv[1:]
from pyspark.sql.types import StructType
from spark_events.enrichment.plan import Plan, Retry
from spark_events.enrichment.api.lasting import lasting
import helper, library, pkg.fns, pkg.util
from helper import URL, Client, ask
from library import ask as of_library

CLIENT, SETTINGS = Client(), helper.Settings()
async def attribute(row): return {"r": helper.ask()}
async def value(row): return {"r": helper.URL}
async def imported(row): return {"r": ask()}
async def imported_value(row): return {"r": URL}
async def in_a_package(row): return {"r": pkg.util.ask()}
async def inside(row):
    from helper import ask as found
    return {"r": found()}
async def inside_by_name(row):
    import helper as found
    return {"r": found.ask()}
async def not_imported_here(row):
    import pkg.alone
    return {"r": pkg.alone.util.ask()}
async def a_class(row): return {"r": Client().get()}
async def an_instance(row): return {"r": CLIENT.get()}
async def a_data_class(row): return {"r": SETTINGS}
async def round_about(row): return {"r": helper.again()}
async def unresolved(row): return {"r": getattr(helper, "as" + "k")()}
async def one_of_a_set(row, all={helper.ask, helper.other, Client, 1}): return {"r": [one for one in all]}
def make(module):
    async def held(row): return {"r": module.ask()}
    return held
def call(held):
    async def called(row): return {"r": held()}
    return called
async def a_library(row):
    from library import ask as found
    return {"r": (library.ask(), library.URL, of_library(), found(), json.dumps(row))}

own = [
    attribute, value, imported, imported_value, in_a_package, inside, inside_by_name, not_imported_here, a_class,
    an_instance, a_data_class, round_about, unresolved, one_of_a_set, pkg.fns.named, pkg.fns.in_the_package,
    pkg.fns.beside_it, pkg.fns.relative,
]
made = {fn.__qualname__: fn for fn in own} | {"module": make(helper), "method": call(CLIENT.get), "library": a_library}
row = StructType().add("id", "long")
digests = {name: lasting(Plan(fn), row, ["id"], ["id"]) for name, fn in made.items()}
assert "pkg.alone" not in sys.modules
print(json.dumps(digests))
"""


def of_modules(folder: Path, version: str = "1", library: str = "1", seed: str = "1", zipped: bool = False) -> Any:
    """The digests of a program whose modules are in a folder, or in an archive, of their own."""
    folder.mkdir()
    for name, text in MODULES.items():
        file = folder / "modules" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("VERSION", library if "site-packages" in name else version), encoding="utf-8")
    paths = [folder / "modules", folder / "modules" / "site-packages"]
    if zipped:
        with zipfile.ZipFile(folder / "modules.zip", "w") as archive:
            for name in MODULES:
                if "site-packages" not in name:
                    archive.write(folder / "modules" / name, name)
        paths[0] = folder / "modules.zip"
    main = folder / "main.py"
    main.write_text(USER, encoding="utf-8")
    variables = {**os.environ, "PYTHONHASHSEED": seed}
    told = subprocess.run([sys.executable, main, *paths], env=variables, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_a_change_in_a_module_of_the_user_s_is_another_function(tmp_path: Path) -> None:
    """However the function comes by it; what is installed as a library goes by its name."""
    first = of_modules(tmp_path / "first")
    changed = of_modules(tmp_path / "changed", version="2")
    assert [name for name in first if first[name] == changed[name]] == ["library"]
    assert of_modules(tmp_path / "library", library="2")["library"] == first["library"]
    assert len(set(first.values())) == len(first)


def test_modules_may_be_elsewhere_after_a_restart(tmp_path: Path) -> None:
    """Where a cluster puts archives and files is another place each time; hashes are others, too."""
    first = of_modules(tmp_path / "first")
    assert of_modules(tmp_path / "second", seed="2") == first
    assert of_modules(tmp_path / "third", seed="3", zipped=True) == first


def test_a_long_way_through_modules_has_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function calls the next one: as many as a program may have."""
    text = "".join(f"def f{number}(row):\n    return f{number + 1}(row)\n" for number in range(2_000))
    text += "def f2000(row):\n    return 'a'\nasync def lookup(row):\n    return f0(row)\n"
    first = digest(module(text, monkeypatch).lookup)
    assert digest(module(text, monkeypatch).lookup) == first
    assert digest(module(text.replace("'a'", "'b'"), monkeypatch).lookup) != first


def test_what_cannot_be_looked_at_is_never_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """It fails nobody, and the log says so."""

    class Shy:
        @property  # type: ignore[misc]  # nobody can set this one
        def __class__(self) -> Any:
            raise RuntimeError("outside of a request")

    assert digest(make(Shy())) != digest(make(Shy()))
    assert "will not know the answers of make.<locals>.lookup" in caplog.text


def test_modules_that_libraries_make_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are no modules, and have no file; what nobody has installed is the user's own."""
    monkeypatch.setitem(sys.modules, "pytest.made", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "own", types.ModuleType("own"))
    for name in ("pytest", "pytest.made", "json.decoder", "sys", "_frozen_importlib", "pyspark.sql", "pyarrow.lib"):
        assert is_library(name, sys.modules[name]), name
    for name in ("own", __name__):
        assert not is_library(name, sys.modules.get(name)), name


def test_what_stands_beside_something_that_cannot_travel_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of functions may hold a lock as well."""
    text = "import threading\nTABLE = {'f': lambda: 'a', 'lock': threading.Lock()}\n"
    text += "async def lookup(row):\n    return TABLE\n"
    first = digest(module(text, monkeypatch).lookup)
    assert digest(module(text, monkeypatch).lookup) == first
    assert digest(module(text.replace("'a'", "'b'"), monkeypatch).lookup) != first


def test_what_is_nested_too_deeply_is_never_the_same() -> None:
    """Called again rather than answered wrongly."""
    held: list[Any] = []
    for _ in range(100_000):
        held = [held]
    assert digest(make(held)) != digest(make(held))


def test_what_cannot_travel_is_the_executor_s_own() -> None:
    """It is refused elsewhere, where it must travel."""
    assert digest(make(threading.Lock())) == digest(make(threading.Lock()))
