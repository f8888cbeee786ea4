"""HashiCorp Vault and OpenBao: values of a KV version 2 engine, over HTTP.

The token is read from its file at each request, so that an agent can renew it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from mainspring.domain.errors import Invalid
from mainspring.http_client import Response
from mainspring.vault.providers.contract import ProviderFailed
from mainspring.vault.providers.guard import path_problem
from mainspring.vault.providers.http_source import MAX_ANSWER_BYTES, field_of, open_client

MAX_TOKEN_BYTES = 8_192


class KvSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`url` is the server, `mount` the path of its KV engine; `ca_file` replaces the authorities of the system."""

    url: str
    token_file: str
    mount: str = "secret"
    namespace: str | None = None
    ca_file: str | None = None


class _Version(msgspec.Struct):
    data: dict[str, Any] | None = None


class _Answer(msgspec.Struct):
    data: _Version | None = None


class KvProvider:
    """Reads the current version; the path is that of the secret in the engine, and `#` with a field."""

    def __init__(self, settings: KvSettings) -> None:
        if (problem := path_problem(settings.mount)) is not None:
            raise Invalid(f"mount: {problem}")
        self._settings = settings
        self._http = open_client(settings.url, ca_file=settings.ca_file)

    async def read(self, path: str) -> str:
        place, _, field = path.partition("#")
        headers = {"X-Vault-Token": self._token(), "X-Vault-Request": "true", "Accept": "application/json"}
        if self._settings.namespace is not None:
            headers["X-Vault-Namespace"] = self._settings.namespace
        target = f"/v1/{quote(self._settings.mount)}/data/{quote(place)}"
        answer = await self._http.request("GET", target, headers=headers, max_bytes=MAX_ANSWER_BYTES)
        return field_of(_values(answer, place), field, place)

    async def close(self) -> None:
        self._http.close()

    def _token(self) -> str:
        file = Path(self._settings.token_file)
        try:
            with file.open("rb") as opened:
                token = opened.read(MAX_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise ProviderFailed(f"cannot read the token file {file}") from None
        if not token or not token.isprintable() or " " in token:
            raise ProviderFailed(f"the token file {file} has no token")
        return token


def _values(answer: Response, place: str) -> dict[str, Any]:
    """Return the fields of a secret. Answers with an error have no values, and are not quoted."""
    match answer.status:
        case 200:
            pass
        case 403:
            raise ProviderFailed(f"its token has no permission for {place}, or has expired")
        case 404:  # also of a version that was deleted
            raise ProviderFailed(f"there is nothing at {place}")
        case 429 | 473:
            raise ProviderFailed(f"it is not ready ({answer.status}: overloaded or a standby)")
        case 503:
            raise ProviderFailed("it is sealed or down (503)")
        case _:
            raise ProviderFailed(f"it answered {answer.status} for {place}")
    try:
        found = msgspec.json.decode(answer.body, type=_Answer)
    except msgspec.MsgspecError:
        raise ProviderFailed("its answer is not that of a KV version 2 engine") from None
    if found.data is None or found.data.data is None:
        raise ProviderFailed("its answer is not that of a KV version 2 engine")
    return found.data.data
