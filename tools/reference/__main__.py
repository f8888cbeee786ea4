"""Write the reference pages."""

from __future__ import annotations

from tools.reference import FOLDER, pages
from tools.tree import ROOT

FOLDER.mkdir(parents=True, exist_ok=True)
for path, text in pages().items():
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")
