"""Run the named benchmarks, or all of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> int:
    """Call ``run`` of each selected module; ``run`` prints the results."""
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    unknown = set(names) - set(known)
    if unknown:
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; available: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        print(f"== {name}")
        importlib.import_module(f"benchmarks.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
