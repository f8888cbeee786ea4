"""Owner, runbook and labels of a job or workflow: metadata that the UI and notifications show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_OWNER_CHARS = 200
MAX_LINK_CHARS = 2000
MAX_LABELS = 20


def contact_fields(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `owner`, `runbook` and `labels`, as far as they are set and usable; metadata may be any JSON."""
    found: dict[str, Any] = {}
    given = metadata or {}
    if isinstance(owner := given.get("owner"), str) and owner:
        found["owner"] = owner[:MAX_OWNER_CHARS]
    if isinstance(link := given.get("runbook"), str) and is_link(link):
        found["runbook"] = link
    if isinstance(labels := given.get("labels"), dict):
        texts = {name[:100]: str(value)[:100] for name, value in labels.items() if isinstance(value, str | int | float)}
        if texts:
            found["labels"] = dict(list(texts.items())[:MAX_LABELS])
    return found


def is_link(text: str) -> bool:
    """Whether a text is a web address that a page may link to."""
    return len(text) <= MAX_LINK_CHARS and text.startswith(("https://", "http://")) and not any(map(str.isspace, text))
