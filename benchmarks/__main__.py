"""Runs the benchmarks, all of them or those that are named."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> int:
    """Each module of the package has a ``run`` that prints its figures."""
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    unknown = set(names) - set(known)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        print(f"== {name}")
        importlib.import_module(f"benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
