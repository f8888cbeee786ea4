"""URLs and the heads of requests. Nothing that is sent can contain a line break of the caller's."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from mainspring.http_client.errors import InvalidRequest

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_TARGET = re.compile(r"/[!-~]*").fullmatch
_FORBIDDEN = re.compile(r"[\0\r\n]").search
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """The server of a URL. `host` is as in the `Host` header, `name` what is resolved and verified."""

    scheme: str
    name: str
    port: int
    host: str


def split_url(url: str) -> tuple[Origin, SplitResult]:
    """Return the origin and the parts of an absolute URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"invalid URL {url!r}: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise InvalidRequest(f"invalid URL {url!r}; use for example http://127.0.0.1:7171")
    name = _ascii_host(parts.hostname)
    shown = f"[{name}]" if ":" in name else name
    default = PORTS[parts.scheme]
    host = shown if port in (None, default) else f"{shown}:{port}"
    return Origin(parts.scheme, name, default if port is None else port, host), parts


def _ascii_host(name: str) -> str:
    if not name.isascii():
        import idna  # takes 20 ms to import, and few URLs need it

        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except idna.IDNAError as error:
            raise InvalidRequest(f"invalid host name {name!r}: {error}") from None
    if not re.fullmatch(r"[0-9A-Za-z._:%~-]+", name):
        raise InvalidRequest(f"invalid host name {name!r}")
    return name


def header_lines(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """Return headers as they are sent, each with its line break."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines = []
    for name, value in pairs:
        if not _TOKEN(name):
            raise InvalidRequest(f"invalid header name {name!r}")
        if _FORBIDDEN(value):
            raise InvalidRequest(f"header {name}: the value contains a line break or NUL")
        lines.append(f"{name}: {value}\r\n")
    try:
        return "".join(lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a header value has characters that HTTP cannot send: {error}") from None


def request_line(method: str, prefix: str, target: str) -> bytes:
    """Return the first line; `prefix` precedes the target: a base path, or all of a URL for a proxy."""
    if not _TOKEN(method):
        raise InvalidRequest(f"invalid method {method!r}")
    if not _TARGET(target):
        raise InvalidRequest(f"invalid path {target!r}: it must start with / and have no spaces or control characters")
    return f"{method} {prefix}{target} HTTP/1.1\r\n".encode("ascii")


def basic_auth(parts: SplitResult) -> str | None:
    """Return the `Authorization` value for the user and password of a URL."""
    if parts.username is None and parts.password is None:
        return None
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
