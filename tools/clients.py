"""Writes the TypeScript and Go clients, `clients/typescript` and `clients/go`, from the OpenAPI document.

Run as `make clients`. A test compares the files with the code. The worker protocol is not part of the clients.
"""

from __future__ import annotations

import json
from pathlib import Path

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.codec import encode
from tools import go_client, typescript_client
from tools.client_model import ClientModel
from tools.tree import ROOT

CLIENTS = {
    ROOT / "clients" / "typescript" / "src" / "mainspring.ts": typescript_client.text,
    ROOT / "clients" / "go" / "mainspring.go": go_client.text,
}


def texts() -> dict[Path, str]:
    """The generated files with their contents."""
    model = ClientModel(json.loads(encode(document(endpoints()))))
    return {path: write(model) for path, write in CLIENTS.items()}


if __name__ == "__main__":
    for path, text in texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
