"""`mainspring.toml`: precedence, refused content, `config show` and `config check` with a file, a real start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.invoke import Invoke
from tests.support.processes import free_port
from tests.support.program import program

FILE = """
log = "warning"
[serve]
roles = ["scheduler", "api"]
port = 8001
keep-history = "30d"
trusted-proxy = ["10.0.0.0/8"]
[worker]
slots = 3
queue = ["a", "b"]
reload = true
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mainspring.toml"
    path.write_text(FILE)
    monkeypatch.setenv("MAINSPRING_CONFIG", str(path))
    return path


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def shown(invoke: Invoke, *words: str) -> dict[str, dict[str, Any]]:
    result = invoke("config", "show", "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    return {item["name"]: item for item in msgspec.json.decode(result.stdout)["items"]}


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    invoke: Invoke, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ("--database-url", "postgresql://me:secret@db/x")
    found = shown(invoke, "serve", *url)
    assert (found["port"]["value"], found["port"]["origin"]) == ("8001", str(file))
    assert (found["log"]["value"], found["log"]["origin"]) == ("warning", str(file))
    assert (found["host"]["value"], found["host"]["origin"]) == ("127.0.0.1", "the default")
    assert found["database-url"]["value"] == "postgresql://me:hidden@db/x"
    monkeypatch.setenv("MAINSPRING_PORT", "8002")
    assert (shown(invoke, "serve", *url)["port"]["value"]) == "8002"
    found = shown(invoke, "serve", *url, "--port", "8003")
    assert (found["port"]["value"], found["port"]["origin"]) == ("8003", "--port")
    found = shown(invoke, "worker")
    assert found["queue"]["value"] == "a, b"
    assert found["reload"]["value"] == "true"
    assert found["slots"]["origin"] == str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[serve]\nprot = 1", "unknown setting [serve] prot; did you mean 'port'?"),
        ("[serv]\nport = 1", "unknown table [serv]; did you mean 'serve'?"),
        ("slts = 3", "unknown setting slts; did you mean 'slots'?"),
        ("[serve]\nport = 99999", "[serve] port: 99999 is not in the range 0<=x<=65535"),
        ("[serve]\nroles = 'schedular'", "[serve] roles: unknown role 'schedular'; did you mean 'scheduler'?"),
        ("[serve]\nkeep-history = 'soon'", "[serve] keep-history: "),
        ("[serve]\napprise = 'yes'", "[serve] apprise: must be true or false"),
        ("[serve]\nport = 1979-05-27", "[serve] port: must be a string, a number"),
        ("[serve]\ndatabase-url = 'postgresql://a:b@c/d'", "contains a password"),
        ("[serve]\ndatabase-url = 'postgresql://c/d?user=a&password=b'", "contains a password"),
        ("token = 'ms_x'", "token cannot be set in a file"),
        ("[serve", "invalid TOML: "),
        ("#" * 70_000, "longer than 65,536 bytes"),
    ],
)
def test_bad_files_are_refused_with_the_place(invoke: Invoke, file: Path, text: str, said: str) -> None:
    file.write_text(text)
    for words in (("config", "check"), ("config", "show", "serve"), ("serve", "--database-url", "postgresql://x/y")):
        result = invoke(*words)
        assert result.exit_code == 6, result.output
        assert f"{file}: " in result.stderr
        assert said in result.stderr


def test_a_file_that_anyone_can_change_is_refused(invoke: Invoke, file: Path) -> None:
    file.chmod(0o666)
    assert "every user can change this file" in invoke("config", "check").stderr


def test_check_reports_what_is_wrong_with_values_and_the_database(
    invoke: Invoke, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke("config", "check", "serve", "--database-url", "postgresql://a@127.0.0.1:1/x")
    assert result.exit_code == 6
    assert "database: cannot connect" in result.stderr
    file.write_text(
        "[worker]\ntoken-file = '/nonexistent'\nlabels = ['x']\nallow-net = ['300.0.0.0/8']\nkube-context = 'x'"
    )
    result = invoke("config", "check")
    assert result.exit_code == 6
    for part in ("/nonexistent", "'x' is not KEY=VALUE", "300.0.0.0/8", "need --kube-namespace", "4 problems"):
        assert part in result.stderr
    monkeypatch.setenv("MAINSPRING_PROT", "1")
    assert "MAINSPRING_PROT is not a known setting" in invoke("config", "check").stderr


@pytest.mark.anyio
async def test_a_server_and_its_commands_start_from_a_file_alone(
    invoke: Invoke, file: Path, tmp_path: Path, database_url: str
) -> None:
    port = free_port()
    secret = tmp_path / "database-url"
    write(secret, database_url, mode=0o644)
    write(file, f"database-url-file = '{secret}'\n[serve]\nport = {port}\nartifact-store = '{tmp_path}/artifacts'\n")
    assert "other users can read the database URL" in invoke("config", "check").stderr
    secret.chmod(0o600)
    result = await asyncio.to_thread(invoke, "config", "check")
    assert result.exit_code == 0, result.stderr
    assert (await asyncio.to_thread(invoke, "db", "status")).exit_code == 0
    with program(tmp_path, "serve", "--config", str(file), port=port) as server:
        await server.ready()
