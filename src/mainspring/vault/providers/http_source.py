"""What the providers that speak HTTP share: the connection with its TLS settings, and fields of JSON values."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mainspring.domain.address import read_address
from mainspring.domain.errors import Invalid
from mainspring.http_client import HttpClient
from mainspring.vault.providers.contract import ProviderFailed

MAX_ANSWER_BYTES = 1_000_000
MAX_CONNECTIONS = 8


def open_client(url: str, *, ca_file: str | None, connect_s: float = 5.0) -> HttpClient:
    """Return a client for a server that the operator named. Without TLS only on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username is not None:
        raise Invalid("url must be https://HOST, without a password")
    if parts.scheme == "http" and not _is_this_machine(parts.hostname):
        raise Invalid("url must begin with https://: values would cross the network in plain text")
    tls = None
    if ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"cannot read ca_file {ca_file}: {error.strerror or 'not a certificate'}") from None
    # Only TLS goes through a proxy: the proxy of a plain connection would see the values.
    env = os.environ if parts.scheme == "https" else {}
    return HttpClient(url, {}, env=env, tls=tls, max_connections=MAX_CONNECTIONS, connect_s=connect_s)


def _is_this_machine(host: str) -> bool:
    try:
        return read_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def field_of(values: Mapping[str, Any], field: str, place: str) -> str:
    """Return a field of a value that consists of several; the only one if none is named."""
    if not field:
        if len(values) != 1:
            raise ProviderFailed(f"{place} has {len(values)} fields; name one: PATH#FIELD")
        field = next(iter(values))
    if field not in values:
        raise ProviderFailed(f"{place} has no field {field}")
    if not isinstance(value := values[field], str):
        raise ProviderFailed(f"the field {field} of {place} is not text")
    return value
