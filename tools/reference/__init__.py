"""Reference pages in Markdown, generated from the code.

`python -m tools.reference` rewrites docs/reference/, and the table of transitions in the page on execution states. A
test fails when a page is not current. After a merge conflict in a page, run the command again.
"""

from __future__ import annotations

from pathlib import Path

from tools.reference import bounds, commands, events, metrics, permissions, routes, settings, transitions
from tools.tree import ROOT

FOLDER = ROOT / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Each page's path and its current text."""
    texts = {
        "api.md": routes.page(),
        "cli.md": commands.page(),
        "configuration.md": settings.page(),
        "events.md": events.page(),
        "metrics.md": metrics.page(),
        "permissions.md": permissions.page(),
    }
    return {FOLDER / name: text for name, text in texts.items()} | {
        transitions.transitions_page(): transitions.page(),
        bounds.bounds_page(): bounds.page(),
    }
