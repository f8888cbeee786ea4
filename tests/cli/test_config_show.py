"""`config show`: each value with its origin, and no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.config import ENVIRONMENT
from tests.support.invoke import Invoke


def shown(invoke: Invoke, *words: str) -> dict[str, dict[str, Any]]:
    result = invoke("config", "show", "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    return {item["name"]: item for item in msgspec.json.decode(result.stdout)["items"]}


def test_options_environment_and_defaults_are_told_apart(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_PORT", "8080")
    found = shown(invoke, "--url", "https://example.com", "--token", "ms_secret")
    assert (found["url"]["value"], found["url"]["origin"]) == ("https://example.com", "--url")
    assert (found["token"]["value"], found["token"]["origin"]) == ("hidden", "--token")
    assert (found["port"]["value"], found["port"]["origin"]) == ("8080", "MAINSPRING_PORT")
    assert found["port"]["used_by"] == ["serve", "dev"]
    assert found["allow-net"]["value"] is None
    assert (found["keep-history"]["value"], found["keep-history"]["origin"]) == ("90d", "the default")


def test_files_are_named(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_URL")
    monkeypatch.delenv("MAINSPRING_TOKEN")
    folder = tmp_path / ".mainspring"
    folder.mkdir()
    (folder / "url").write_text("http://127.0.0.1:9")
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text("ms_secret")
    found = shown(invoke)
    assert (found["url"]["value"], found["url"]["origin"]) == ("http://127.0.0.1:9", str(folder / "url"))
    assert (found["token"]["value"], found["token"]["origin"]) == ("hidden", str(folder / "token"))


def test_no_secret_is_printed(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DATABASE_URL", "postgresql://me:pass-word@host/db")
    monkeypatch.setenv("MAINSPRING_TOKEN", "ms_tok-en")
    for words in ((), ("-o", "json"), ("-o", "yaml"), ("-o", "wide")):
        text = invoke("config", "show", *words).stdout
        assert "pass-word" not in text
        assert "tok-en" not in text
        assert "postgresql://me:hidden@host/db" in text


def test_every_variable_has_a_line(invoke: Invoke) -> None:
    names = {variable.removeprefix("MAINSPRING_").lower().replace("_", "-") for variable in ENVIRONMENT}
    of_migrations = {"server-database-url", "server-database-url-file"}  # of `db migrate` only
    assert names - of_migrations <= shown(invoke).keys()
