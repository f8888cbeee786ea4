"""URLs of optional engines, as they may be shown: without credentials."""

from __future__ import annotations

from urllib.parse import urlsplit


def public_url(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}"
