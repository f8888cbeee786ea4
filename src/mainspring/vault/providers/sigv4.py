"""AWS Signature Version 4 of a request with a body and without a query."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str
    session_token: str | None = None


def signed_headers(
    headers: Mapping[str, str], body: bytes, credentials: Credentials, *, region: str, service: str, at: datetime
) -> dict[str, str]:
    """Return the headers of `POST /` with their signature. `headers` include the host."""
    stamp = f"{at:%Y%m%dT%H%M%SZ}"
    found = {name.lower(): " ".join(value.split()) for name, value in headers.items()} | {"x-amz-date": stamp}
    if credentials.session_token is not None:
        found["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(found))
    lines = "".join(f"{name}:{found[name]}\n" for name in sorted(found))
    request = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    given = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return found | {"authorization": f"{ALGORITHM} {given}"}
