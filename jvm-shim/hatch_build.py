"""Build hook for Hatchling: compile the jar before the wheel is built; fail the build if this is impossible."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Import the script by its path, because this folder is not a package.
_spec = importlib.util.spec_from_file_location("spark_events_shim_build", Path(__file__).with_name("build.py"))
assert _spec is not None
assert _spec.loader is not None
shim = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shim)


class ShimBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        """Require PySpark (several hundred megabytes) only if the jar must be compiled."""
        try:
            if shim.is_fresh():
                return []
            shim.find_jdk()  # fail before the download if no JDK is installed
        except shim.BuildError as error:
            self.fail(error)
        groups: dict[str, list[str]] = self.metadata.config["dependency-groups"]
        return groups["spark-newest"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            shim.ensure()
        except shim.BuildError as error:
            self.fail(error)

    def fail(self, error: Exception) -> NoReturn:
        self.app.abort(f"spark-events cannot build its jar: {error}")
        raise error  # not reached: abort() prints the message and exits
