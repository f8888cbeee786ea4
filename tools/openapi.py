"""The API as a committed document. `python -m tools.openapi` writes docs/openapi.json anew; a test compares it
with the code, so that a change of the API is always a decision."""

from __future__ import annotations

import json

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.codec import encode
from tools.tree import ROOT

DOCUMENT = ROOT / "docs" / "openapi.json"


def text() -> str:
    # Through the codec, so that the document is what the server answers.
    return json.dumps(json.loads(encode(document(endpoints()))), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(text(), encoding="utf-8")
    print(f"{DOCUMENT.relative_to(ROOT)} is up to date.")
