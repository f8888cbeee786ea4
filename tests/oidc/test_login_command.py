"""`mainspring login`, `whoami` and `logout`: the device flow against a real issuer and a real server."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mainspring.client.discovery import LOGINS, discover, identity_of
from mainspring.client.logins import Logins
from mainspring.domain.errors import Unauthenticated
from tests.conftest import Cluster
from tests.support.oidc_issuer import Provider
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio
PATIENCE_S = 120.0
Run = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(home: Path) -> Run:
    """Runs `mainspring` as a program, in a home and a folder of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}

    async def run(*words: str, folder: Path = home) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "mainspring.cli.main", *words],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**env, "HOME": str(home)},
            timeout=PATIENCE_S,
        )

    return run


async def decide(issuer: Provider, state: str) -> None:
    """Confirm or refuse, as soon as a command asks."""

    async def decided() -> bool:
        return bool(await issuer.control("decide", state=state))

    await until_async("a command asks for a device code", decided, within_s=PATIENCE_S)


async def signed_in(
    command: Run, issuer: Provider, url: str, state: str = "approved"
) -> subprocess.CompletedProcess[str]:
    done, _ = await asyncio.gather(command("--url", url, "login"), decide(issuer, state))
    return done


async def test_a_user_signs_in_and_out(federated: Cluster, issuer: Provider, command: Run, home: Path) -> None:
    done = await signed_in(command, issuer, federated.url)
    assert done.returncode == 0, done.stderr
    assert "enter the code WDJB-MJHT" in done.stderr and "role viewer" in done.stderr
    (file,) = (home / LOGINS).glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    done = await command("--url", federated.url, "-o", "json", "whoami")
    assert json.loads(done.stdout)["role"] == "viewer", done.stderr
    done = await command("--url", federated.url, "jobs", "list")
    assert done.returncode == 0, done.stderr
    refresh = json.loads(file.read_text())["refresh_token"]
    done = await command("--url", federated.url, "logout")
    assert done.returncode == 0 and not list((home / LOGINS).glob("*.json"))
    done = await command("--url", federated.url, "whoami")
    assert done.returncode == 4 and "mainspring login" in done.stderr
    assert (await command("--url", federated.url, "logout")).returncode == 3
    assert refresh not in done.stdout


async def test_a_refused_sign_in_leaves_nothing(federated: Cluster, issuer: Provider, command: Run, home: Path) -> None:
    done = await signed_in(command, issuer, federated.url, "denied")
    assert done.returncode == 4 and "access_denied" in done.stderr
    assert not (home / LOGINS).exists()


async def test_an_account_without_access_leaves_nothing(
    federated: Cluster, issuer: Provider, command: Run, home: Path
) -> None:
    await issuer.control("set", subject="nora", claims={"groups": []})
    done = await signed_in(command, issuer, federated.url)
    await issuer.control("set", subject="alice", claims={"groups": ["staff"]})
    assert done.returncode == 4 and "match no tenant or role" in done.stderr
    assert not list((home / LOGINS).glob("*.json"))


async def test_an_expired_token_is_renewed_once_by_one_process(
    federated: Cluster, issuer: Provider, command: Run, home: Path
) -> None:
    await signed_in(command, issuer, federated.url)
    logins, server = Logins(home), identity_of(federated.url)
    login = logins.read(server)
    assert login is not None
    old = login.access_token
    login.expires_at = 0.0
    logins.write(login)
    before = await issuer.count("/token")
    tokens = await asyncio.gather(*(asyncio.to_thread(logins.token_for, server) for _ in range(4)))
    assert len(set(tokens)) == 1 and tokens[0] != old
    assert await issuer.count("/token") == before + 1
    assert discover(federated.url, home=home).token == tokens[0]


async def test_a_login_that_cannot_be_renewed_says_what_to_do(
    federated: Cluster, issuer: Provider, command: Run, home: Path
) -> None:
    await signed_in(command, issuer, federated.url)
    logins, server = Logins(home), identity_of(federated.url)
    login = logins.read(server)
    assert login is not None
    login.expires_at, login.refresh_token, login.access_token = 0.0, "gone", login.access_token[:-4]
    logins.write(login)
    done = await command("--url", federated.url, "whoami")
    assert done.returncode == 4 and "mainspring login" in done.stderr


async def test_the_token_goes_to_its_server_only(
    federated: Cluster, issuer: Provider, command: Run, home: Path
) -> None:
    await signed_in(command, issuer, federated.url)
    assert discover(federated.url, home=home, folder=home).token is not None
    assert discover("http://127.0.0.1:1", home=home, folder=home).token is None
    assert discover("http://other.example", home=home, folder=home).token is None
    file = Logins(home).file_of(identity_of(federated.url))
    moved = Logins(home).file_of(identity_of("http://other.example"))
    moved.write_bytes(file.read_bytes())
    moved.chmod(0o600)
    assert discover("http://other.example", home=home, folder=home).token is None, "the file names its server"
    file.chmod(0o644)
    with pytest.raises(Unauthenticated, match="chmod 600"):
        discover(federated.url, home=home, folder=home)


async def test_a_folder_cannot_choose_the_server_to_sign_in_to(command: Run, home: Path) -> None:
    folder = home / "cloned"
    (folder / ".mainspring").mkdir(parents=True)
    (folder / ".mainspring" / "url").write_text("https://evil.example")
    done = await command("login", folder=folder)
    assert done.returncode == 4 and "pass --url https://evil.example" in done.stderr


async def test_a_server_without_identity_provider_says_so(cluster: Cluster, command: Run) -> None:
    done = await command("--url", cluster.url, "login")
    assert done.returncode == 3 and "use a token" in done.stderr
