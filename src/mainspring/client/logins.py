"""Sign-ins of `mainspring login`: one private file for each server, and the renewal of its token at the issuer."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from mainspring.client.discovery import LOGINS, read_private
from mainspring.clock import SystemClock
from mainspring.domain.errors import Unavailable, invalid
from mainspring.domain.issuer import LOOPBACK, is_secure
from mainspring.http_client import BlockingNetwork, HttpClient, HttpError, InvalidRequest, finish
from mainspring.http_client.request import split_url

EARLY_S = 30.0
"""How long before its end a token is renewed."""
TIMEOUT_S = 15.0
MAX_BYTES = 256 * 1024
DEFAULT_LIFETIME_S = 300.0
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Login(msgspec.Struct, kw_only=True):
    """A sign-in to one server. `server` is the identity of its URL; the token is sent to no other."""

    server: str
    issuer: str
    client_id: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    access_token: str
    refresh_token: str | None = None
    expires_at: float


class Logins:
    """The sign-ins of a user, in their home folder."""

    def __init__(self, home: Path) -> None:
        self._folder = home / LOGINS

    def file_of(self, server: str) -> Path:
        return self._folder / f"{hashlib.sha256(server.encode()).hexdigest()[:20]}.json"

    def read(self, server: str) -> Login | None:
        file = self.file_of(server)
        if not file.exists():
            return None
        try:
            login = msgspec.json.decode(read_private(file), type=Login)
        except msgspec.DecodeError:
            return None
        return login if login.server == server else None

    def write(self, login: Login) -> None:
        """Write a file that only this user can read, atomically. The folder is the user's own."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.file_of(login.server)
        new = file.with_suffix(f".{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(login))
        new.replace(file)

    def forget(self, server: str) -> None:
        self.file_of(server).unlink(missing_ok=True)

    def token_for(self, server: str) -> str | None:
        """The token for a server, renewed if it has expired. An expired one if that fails: the server refuses it."""
        login = self.read(server)
        if login is None or not _is_old(login) or login.refresh_token is None:
            return None if login is None else login.access_token
        with self._locked():
            login = self.read(server) or login  # another process may have renewed it
            if _is_old(login):
                login = self._renewed(login)
            return login.access_token

    def _renewed(self, login: Login) -> Login:
        form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or "", "client_id": login.client_id}
        try:
            status, answer = request("POST", login.token_endpoint, form)
        except Unavailable:
            return login
        if status != 200 or not isinstance(answer.get("access_token"), str):
            return login
        renewed = msgspec.structs.replace(
            login,
            access_token=answer["access_token"],
            refresh_token=_text(answer.get("refresh_token")) or login.refresh_token,
            expires_at=expiry(answer),
        )
        self.write(renewed)
        return renewed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process renews at a time: a refresh token often works once."""
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def expiry(answer: Mapping[str, Any]) -> float:
    """When the token of a response expires, in seconds since 1970."""
    lifetime = answer.get("expires_in")
    known = isinstance(lifetime, int | float) and not isinstance(lifetime, bool) and lifetime > 0
    return now_s() + (float(lifetime) if known and lifetime is not None else DEFAULT_LIFETIME_S)


def now_s() -> float:
    return SystemClock().now_ms() / 1000


def request(method: str, url: str, form: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Send a request to an issuer; return the status and the JSON object of the response. Follows no redirects."""
    if not is_secure(url):
        raise invalid("", f"{url!r} is not https", hint="an issuer must use https, unless it runs on this machine")
    try:
        origin, parts = split_url(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        env: dict[str, str] | None = {} if urlsplit(url).hostname in LOOPBACK else None
        client = HttpClient(f"{origin.scheme}://{origin.host}", {}, network=BlockingNetwork(), env=env)
        body = None if form is None else urlencode(form).encode()
        headers = {"Accept": "application/json", "User-Agent": "mainspring", **({} if form is None else FORM)}
        try:
            response = finish(
                client.request(method, target, body, headers=headers, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)
            )
        finally:
            client.close()
        return response.status, msgspec.json.decode(response.body or b"{}", type=dict[str, Any])
    except (HttpError, InvalidRequest, OSError) as error:
        raise Unavailable(f"cannot reach {url}: {error}", code="issuer_unavailable") from None
    except (msgspec.DecodeError, RecursionError):
        raise Unavailable(f"{url} did not answer with a JSON object", code="issuer_unavailable") from None


def _is_old(login: Login) -> bool:
    return login.expires_at - EARLY_S <= now_s()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
