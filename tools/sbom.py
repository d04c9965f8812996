"""sbom: write the bill of materials of a wheel: what it needs to run, pinned, with the hashes it is checked by.

python tools/sbom.py requirements/run.txt WHEEL > WHEEL.cdx.json
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill_of_materials(lock: Path, wheel: Path, *, version: str) -> dict[str, Any]:
    """Return what CycloneDX 1.6 has of a wheel and of every pin of a lock."""
    parts: list[dict[str, Any]] = []
    for line in lock.read_text().splitlines():
        if pin := _PIN.match(line):
            name, pinned = pin.groups()
            purl = f"pkg:pypi/{name.lower()}@{pinned}"
            parts.append(
                {"type": "library", "name": name, "version": pinned, "purl": purl, "bom-ref": purl, "hashes": []}
            )
        for digest in _HASH.findall(line):
            # One for each file of that version: the installer takes whichever fits the machine.
            parts[-1]["hashes"].append({"alg": "SHA-256", "content": digest})
    purl = f"pkg:pypi/pegboard@{version}"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    whole = {
        "type": "library", "name": "pegboard", "version": version, "purl": purl, "bom-ref": purl,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }  # fmt: skip
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": whole},
        "components": parts, "dependencies": [{"ref": purl, "dependsOn": [part["bom-ref"] for part in parts]}],
    }  # fmt: skip


if __name__ == "__main__":
    [_, given, built] = sys.argv
    wheel_version = Path(built).name.split("-")[1]
    print(json.dumps(bill_of_materials(Path(given), Path(built), version=wheel_version), indent=1))
