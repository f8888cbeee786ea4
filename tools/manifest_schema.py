"""Writes the JSON Schema of manifests, `docs/manifest.schema.json`, for editors.

Run as `python -m tools.manifest_schema`. A test compares the file with the code.
"""

from __future__ import annotations

import json

from mainspring.manifest.schema import schema
from tools.tree import ROOT

DOCUMENT = ROOT / "docs" / "manifest.schema.json"


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
    print(f"{DOCUMENT.relative_to(ROOT)} is up to date.")
