"""Software bill of materials (SBOM, CycloneDX 1.6) of the published files and their dependencies."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def bill_of_materials(version: str, files: Iterable[Path], requirements: Sequence[str], epoch: int) -> dict[str, Any]:
    """Return the SBOM as a JSON document.

    The package allows a range of versions of each dependency, and an installer chooses the version. Therefore, the SBOM
    contains a property with the range, and no version, for each dependency.

    Args:
        version: version of this project.
        files: the published files.
        requirements: the ``Requires-Dist`` lines of the wheel.
        epoch: the document's time, in seconds since 1970.
    """
    main = f"pkg:pypi/spark-events@{version}"
    published = [
        {
            "type": "file",
            "bom-ref": path.name,
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        }
        for path in files
    ]
    needed = _dependencies(requirements)
    content = f"{published}{needed}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).isoformat(),
            "component": {
                "type": "library",
                "bom-ref": main,
                "name": "spark-events",
                "version": version,
                "purl": main,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "components": published,
            },
        },
        "components": needed,
        "dependencies": [{"ref": main, "dependsOn": [component["bom-ref"] for component in needed]}],
    }


def _dependencies(requirements: Sequence[str]) -> list[dict[str, Any]]:
    lines: dict[str, list[str]] = {}
    for requirement in sorted(requirements):
        found = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert found is not None, requirement
        lines.setdefault(found[0].lower(), []).append(requirement)
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "purl": f"pkg:pypi/{name}",
            "scope": "optional" if all(_EXTRA.search(line) for line in given) else "required",
            "properties": [{"name": "spark-events:requirement", "value": line} for line in given],
        }
        for name, given in lines.items()
    ]
