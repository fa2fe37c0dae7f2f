"""Run the named benchmarks or all benchmarks, each in its own process, and write their results to build/bench."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys

import benchmarks
from benchmarks._peers import FOLDER, write
from benchmarks._plots import plot


def main(names: list[str]) -> int:
    """Print the output of each selected module's ``run``, and write one table of all lines, named after the machine."""
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    unknown = set(names) - set(known)
    if unknown:
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; available: {', '.join(known)}", file=sys.stderr)
        return 2
    results: dict[str, list[str]] = {}
    for name in names or known:
        print(f"== {name}", flush=True)
        results[name] = []
        code = f"from benchmarks import {name}; {name}.run()"
        with subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                results[name].append(line.rstrip())
        if process.returncode:
            return 1
    rows = [f"| {name} | {line.strip()} |" for name, lines in results.items() for line in lines if "|" not in line]
    write("results", ["| benchmark | result |", "|---|---|", *rows], results, show=False)
    if importlib.util.find_spec("matplotlib"):
        for path in plot(results, FOLDER):
            print(f"wrote {path}")
    else:
        print("no charts, because matplotlib is missing; run: .venv/bin/python -m pip install --group plots")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
