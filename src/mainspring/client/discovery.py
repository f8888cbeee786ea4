"""Server discovery: which URL and token the client uses.

For the URL and for the token, the first of these that sets it:

1. the arguments (`--url`, `--token`)
2. the environment (`MAINSPRING_URL`, `MAINSPRING_TOKEN`)
3. `.mainspring/url` and `.mainspring/token` in the current folder or the nearest parent that has one
4. `~/.config/mainspring/config.toml` with `url` and `token`
5. http://127.0.0.1:7171; the token of `mainspring login` to that server

A token is sent only to the server that it was given for:

- A token of the arguments or the environment goes to the URL of the arguments or the environment. Without one it goes
  to the user's own config, or to the default; a folder that names another server is refused. Folders come from
  elsewhere: cloned, unpacked, shared.
- `MAINSPRING_TOKEN` belongs to `MAINSPRING_URL` if both are set, and is not sent to another `--url`.
- A token from a file goes to the server that the same place names, and is only read from a file that other users cannot
  read. A folder that belongs to another user is not trusted to name a server.
- The token of `mainspring login` goes to the server that the user signed in to.
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mainspring.domain.errors import Unauthenticated, invalid

DEFAULT_URL = "http://127.0.0.1:7171"
FOLDER = ".mainspring"
CONFIG = Path(".config", "mainspring", "config.toml")
LOGINS = Path(".config", "mainspring", "logins")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Server:
    """A server's URL and token; `origin` and `token_origin` say where they were found."""

    url: str
    token: str | None = None
    origin: str = "the default"
    token_origin: str = field(default="the arguments", compare=False)

    def __repr__(self) -> str:
        token = "none" if self.token is None else "hidden"
        return f"Server(url={self.url!r}, token={token}, origin={self.origin!r})"

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in _LOOPBACK


@dataclass(frozen=True, slots=True)
class _Source:
    """A project folder or user config that names a server."""

    url: str | None = None
    url_file: Path = Path()
    token_file: Path | None = None


def discover(
    url: str | None = None,
    token: str | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    folder: Path | None = None,
    home: Path | None = None,
    logins: bool = True,
) -> Server:
    """Return the server to use from `folder` (the current one by default), in the order above.

    The token of a login that has expired is renewed at its issuer. `logins=False` leaves logins out.
    """
    sources = [_project(folder or Path.cwd()), _personal(home or Path.home())]
    named = [(url, "--url"), (env.get("MAINSPRING_URL"), "MAINSPRING_URL")]
    named += [(source.url, str(source.url_file)) for source in sources]
    address, origin = next(((text, where) for text, where in named if text), (DEFAULT_URL, "the default"))
    address = _checked(address, origin)
    in_env = env.get("MAINSPRING_TOKEN")
    if in_env and origin == "--url" and not _same(address, _checked(env.get("MAINSPRING_URL") or address, origin)):
        in_env = None  # it belongs to MAINSPRING_URL
    if token or in_env:
        _refuse_redirection(address, origin, "--token" if token else "MAINSPRING_TOKEN", sources)
    token_origin = "--token" if token else "MAINSPRING_TOKEN" if in_env else _token_file(address, sources)
    token = token or in_env or _token_for(address, sources)
    if token is None and logins and (found := _login(address, home or Path.home())) is not None:
        token, token_origin = found
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise Unauthenticated("the token contains invalid characters: was it copied completely?")
    return Server(address, token, origin, token_origin)


def _login(address: str, home: Path) -> tuple[str, str] | None:
    """The token of `mainspring login` to a server, and its file."""
    if not (home / LOGINS).is_dir():
        return None
    from mainspring.client.logins import Logins  # loads the HTTP client

    logins = Logins(home)
    token = logins.token_for(identity_of(address))
    return None if token is None else (token, str(logins.file_of(identity_of(address))))


def _refuse_redirection(address: str, origin: str, given: str, sources: list[_Source]) -> None:
    """Refuse to send a token that was given without a URL to a server that a folder names."""
    project, personal = sources
    if project.url is not None and origin == str(project.url_file):
        if not _same(address, _checked(personal.url or DEFAULT_URL, str(personal.url_file))):
            raise Unauthenticated(
                f"the token of {given} is not sent to {address}, which {origin} names; "
                f"to send it there, pass --url {address} or set MAINSPRING_URL",
                code="token_of_another_server",
            )
    elif personal.url is not None and origin == str(personal.url_file):
        _refuse_writable(personal.url_file)


def _refuse_writable(path: Path) -> None:
    """Refuse a config that another user can change: the server that it names would receive the token."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unsafe(f"other users can change {path}", f"run: chmod go-w {path}, or pass --url")


def _project(folder: Path) -> _Source:
    """Read the nearest `.mainspring` at or above `folder`."""
    for parent in (folder, *folder.parents):
        url_file, token_file = parent / FOLDER / "url", parent / FOLDER / "token"
        if os.path.exists(url_file) or os.path.exists(token_file):  # false also where this user may not look
            _refuse_foreign(parent / FOLDER)
            url = url_file.read_text(encoding="utf-8").strip() if url_file.exists() else None
            return _Source(url, url_file, token_file if token_file.exists() else None)
    return _Source()


def _personal(home: Path) -> _Source:
    path = home / CONFIG
    if not path.exists():
        return _Source()
    content = _read_config(path)
    return _Source(content.get("url"), path, path if "token" in content else None)


def _read_config(path: Path) -> dict[str, str]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid("", f"{path} is not valid TOML: {error}", hint='for example url = "https://…"') from None
    for key, value in content.items():
        if key not in ("url", "token"):
            close = difflib.get_close_matches(key, ("url", "token"), n=1)
            hint = f"did you mean {close[0]!r}?" if close else "known settings: url, token"
            raise invalid(f"/{key}", f"{path}: unknown setting {key!r}", hint=hint)
        if not isinstance(value, str):
            raise invalid(f"/{key}", f"{path}: {key} must be a string", hint="put it in quotes")
    return content


def _token_for(address: str, sources: list[_Source]) -> str | None:
    for source in sources:
        if source.token_file and _same(address, _checked(source.url or DEFAULT_URL, str(source.url_file))):
            text = read_private(source.token_file)
            both = source.token_file == source.url_file
            return str(tomllib.loads(text)["token"]) if both else text.strip()
    return None


def _token_file(address: str, sources: list[_Source]) -> str:
    """Where `_token_for` finds the token."""
    for source in sources:
        if source.token_file and _same(address, _checked(source.url or DEFAULT_URL, str(source.url_file))):
            return str(source.token_file)
    return "nowhere"


def read_private(path: Path) -> str:
    """Return the content of a file that only this user can read; reject any other."""
    with path.open(encoding="utf-8") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid():
            raise _unsafe(f"{path} belongs to another user", "pass --token, or set MAINSPRING_TOKEN")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            raise _unsafe(f"other users can read the token in {path} (mode {mode})", f"run: chmod 600 {path}")
        return file.read()


def _refuse_foreign(folder: Path) -> None:
    """Reject a folder of another user: the server that it names would receive the token."""
    if folder.stat().st_uid != os.geteuid():
        raise _unsafe(f"{folder} belongs to another user", "pass --url and --token, or run from another folder")


def _unsafe(what: str, hint: str) -> Unauthenticated:
    return Unauthenticated(f"{what}; {hint}", code="unsafe_token")


def _checked(url: str, origin: str) -> str:
    try:
        parts = urlsplit(url)
        plain = not (parts.query or parts.fragment or parts.username)
        known = plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise invalid("", f"{url!r} (from {origin}) is not a valid server URL", hint=f"for example {DEFAULT_URL}")
    return url.rstrip("/")


def _same(one: str, other: str) -> bool:
    return _identity(one) == _identity(other)


def identity_of(url: str) -> str:
    """A text that is the same for all spellings of a server's URL."""
    scheme, host, port, path = _identity(url)
    return f"{scheme}://{host}:{port}{path}"


def _identity(url: str) -> tuple[str, str, int, str]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, "loopback" if host in _LOOPBACK else host, port, parts.path.rstrip("/")
