"""Build and check paths of this server."""

from __future__ import annotations

import re
from urllib.parse import urlencode

_LOCAL_PATH = re.compile(r"/(?![/\\])[\w./~?=&%+:@,-]*\Z", re.ASCII)


def link(path: str, **values: str | tuple[str, ...]) -> str:
    """Return a path with its query; empty values are left out."""
    query = urlencode({k: v for k, v in values.items() if v}, doseq=True)
    return f"{path}?{query}" if query else path


def local_path(text: str, default: str = "/") -> str:
    """Return the path if it is on this server, else the default: a crafted link can't redirect to another site."""
    return text if _LOCAL_PATH.match(text) else default
