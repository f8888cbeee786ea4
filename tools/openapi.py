"""Writes the OpenAPI document, `docs/openapi.json`.

Run as `python -m tools.openapi`. A test compares the file with the code, so that every API change is deliberate.
"""

from __future__ import annotations

import json

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.codec import encode
from tools.tree import ROOT

DOCUMENT = ROOT / "docs" / "openapi.json"


def text() -> str:
    # Through the codec, so that the file equals what the server sends.
    return json.dumps(json.loads(encode(document(endpoints()))), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(text(), encoding="utf-8")
    print(f"{DOCUMENT.relative_to(ROOT)} is up to date.")
