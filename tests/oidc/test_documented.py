"""The configuration in docs/how-to/access.md, with the addresses of a test instead of those of the example."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import httpx2
import pytest

from mainspring.cli.config_file import load_command
from mainspring.config import ServeConfig
from mainspring.domain.issuer import Issuer
from tests.conftest import started
from tests.oidc.conftest import bearer
from tests.support.oidc_issuer import AUDIENCE, DEVICE_CLIENT, WEB_CLIENT, Provider
from tools.tree import ROOT

pytestmark = pytest.mark.anyio
PAGE = (ROOT / "docs/how-to/access.md").read_text(encoding="utf-8")
EXAMPLE = next(block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "[issuers." in block)


def loaded(text: str, folder: Path, *flags: str) -> ServeConfig:
    """The configuration of `mainspring serve` with this file."""
    file = folder / "mainspring.toml"
    file.write_text(text)
    words = ["--config", str(file), "--database-url", "postgresql://localhost/x", *flags]
    context = load_command("serve").make_context("serve", words)
    return ServeConfig(**{name: value for name, value in context.params.items() if name in ServeConfig.__slots__})


async def test_the_example_works(issuer: Provider, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "client-secret").write_text("secret")
    text = EXAMPLE
    for shown, real in {
        "https://id.example.com": issuer.url,
        '"mainspring"': f'"{AUDIENCE}"',
        "/etc/mainspring/client-secret": str(tmp_path / "client-secret"),
    }.items():
        assert shown in text
        text = text.replace(shown, real)
    config = loaded(text, tmp_path)
    (configured,) = config.issuers
    assert (configured.client_id, configured.device_client_id) == (WEB_CLIENT, DEVICE_CLIENT)
    public = {"issuers": config.issuers, "public_url": config.public_url}
    async with (
        started(database_url, rate_limit=0, **public) as cluster,
        httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=30) as http,
    ):
        token = await issuer.mint(groups=["staff", "mainspring-operators"])
        caller = (await http.get("/api/v1/whoami", headers=bearer(token))).json()
        assert (caller["tenant"], caller["role"]) == ("default", "operator")
        assert "Sign in with Example ID" in (await http.get("/login")).text


def test_every_setting_is_documented_and_every_documented_one_exists(tmp_path: Path) -> None:
    from mainspring.domain.issuer import _KEYS

    section = PAGE.partition("## Sign in with an identity provider")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([^`]*)`", row)}
    in_example = tomllib.loads(EXAMPLE)["issuers"]["corp"].keys()
    assert documented | in_example == set(_KEYS)


def test_an_issuer_file_adds_to_the_configuration(tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text('[issuers.ci]\nurl = "https://ci.example.com"\naudience = "m"\ntenant = "t"\nrole = "viewer"\n')
    config = loaded(EXAMPLE, tmp_path, "--issuer-file", str(more))
    assert [issuer.name for issuer in config.issuers] == ["corp", "ci"]
    assert config.issuers[1] == Issuer("ci", "https://ci.example.com", "m", tenant="t", role="viewer")
