"""Providers read values of real servers, files and variables, and never more than their tenants may read."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.clock import SystemClock, instant
from mainspring.domain.errors import Invalid
from mainspring.http_client import HttpClient
from mainspring.vault.providers import GuardedProvider, ProviderFailed
from mainspring.vault.providers.configuration import read_providers
from mainspring.vault.providers.guard import path_problem
from mainspring.vault.providers.sigv4 import Credentials, signed_headers
from tests.support.certificates import make_certificate
from tests.support.secret_servers import MOTO, KvServer, MotoServer, VaultServer

VALUE = "hunter2-correct-horse"


def providers(folder: Path, text: str) -> dict[str, GuardedProvider]:
    file = folder / "providers.toml"
    file.write_text(text)
    return read_providers(file)


async def failure(reading: Awaitable[str]) -> str:
    with pytest.raises(ProviderFailed) as failed:
        await reading
    assert VALUE not in str(failed.value)
    return str(failed.value)


@pytest.mark.parametrize(
    "path", ["", "/etc", "a//b", "a/../b", "..", "a/.", "a b", "a\n", "a?b", "a%2e", "a#", "a#b#c", "a*", "x" * 501]
)
def test_a_path_cannot_leave_its_prefix(path: str) -> None:
    assert path_problem(path) is not None


@pytest.mark.parametrize("path", ["NAME", "apps/etl/db", "apps/etl#password", "arn:aws:x:eu-west-1:1:secret:a-b/c"])
def test_plain_paths_are_accepted(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1", r"\[a\]: a provider is a table"),
        ("[a]\nkind = 'file'", "missing required field `folder`"),
        ("[a]\nkind = 'file'\nfolder = 'relative'", "absolute path"),
        ("[a]\nkind = 'nothing'", "unknown kind 'nothing'; known: environment, file, vault, aws"),
        ("[a]\nkind = 'environment'\ncolour = 1", "unknown field `colour`"),
        ("[a]\nkind = 'environment'\nallow = { default = ['a*b'] }", "matching regex"),
        ("[a]\nkind = 'environment'\ntimeout_s = 0", "timeout_s"),
        ("[a]\nkind = 'vault'\nurl = 'http://vault.example.com'\ntoken_file = '/t'", "must begin with https://"),
        ("[a]\nkind = 'vault'\nurl = 'https://u:p@v.example.com'\ntoken_file = '/t'", "without a password"),
        ("[a]\nkind = 'vault'\nurl = 'https://v.example.com'\ntoken_file = '/t'\nca_file = '/no'", "ca_file"),
        ("[a]\nkind = 'aws'\nregion = 'eu west'", "name of a region"),
        ("[a", "is not a TOML file"),
    ],
)
def test_a_wrong_provider_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        providers(tmp_path, text)


async def test_no_tenant_reads_what_the_file_does_not_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_TOKEN", VALUE)
    monkeypatch.setenv("MAINSPRING_SECRET_KEY", VALUE)
    text = "[env]\nkind = 'environment'\nallow = { default = ['APP_*'], all = ['*'] }\n[closed]\nkind = 'environment'"
    found = providers(tmp_path, text)
    assert await found["env"].read("default", "APP_TOKEN") == VALUE
    for provider, tenant, path in (
        ("env", "default", "PATH"),
        ("env", "other", "APP_TOKEN"),
        ("closed", "default", "APP_TOKEN"),
    ):
        assert "does not allow this path to the tenant" in await failure(found[provider].read(tenant, path))
    assert "no variable MAINSPRING_SECRET_KEY" in await failure(found["env"].read("all", "MAINSPRING_SECRET_KEY"))
    assert "no variable APP_NOTHING" in await failure(found["env"].read("default", "APP_NOTHING"))


async def test_files_are_read_inside_their_folder_only(tmp_path: Path) -> None:
    folder, outside = tmp_path / "mounted", tmp_path / "outside"
    (folder / "..data").mkdir(parents=True)
    (folder / "..data/password").write_text(f"{VALUE}\n")
    (folder / "password").symlink_to("..data/password")
    outside.write_text(VALUE)
    (folder / "link").symlink_to(outside)
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(b"\xff\xfe\x00\x01")
    (folder / "short").write_text("abc")
    (folder / "large").write_text("x" * 300_000)
    os.mkfifo(folder / "pipe")
    text = f"[files]\nkind = 'file'\nfolder = '{folder}'\ncache_s = 0\nallow = {{ default = ['*'] }}"
    source = providers(tmp_path, text)["files"]
    assert await source.read("default", "password") == VALUE
    for path, reason in (
        ("link", "a link out of the folder"),
        ("folder", "Is a directory"),
        ("binary", "is not UTF-8"),
        ("short", "at least 4 are needed"),
        ("large", "larger than"),
        ("pipe", "is not a file"),
        ("nothing", "No such file"),
    ):
        assert reason in await failure(source.read("default", path))


class Slow:
    """A plug-in that counts its reads."""

    reads = 0

    async def read(self, path: str) -> str:
        self.reads += 1
        if path == "never":
            await asyncio.Event().wait()
        if path == "broken":
            raise ValueError(f"cannot parse {VALUE}")
        return VALUE

    async def close(self) -> None:
        pass


async def test_values_are_cached_and_time_is_bounded() -> None:
    slow = Slow()
    guarded = GuardedProvider("plug", slow, {"default": ["*"]}, timeout_s=0.05, cache_s=60)
    assert await asyncio.gather(*(guarded.read("default", "a") for _ in range(20))) == [VALUE] * 20
    assert slow.reads == 1
    assert await failure(guarded.read("default", "never")) == "the provider 'plug' did not answer within 0.05 s"
    assert await failure(guarded.read("default", "broken")) == "the provider 'plug' failed: ValueError"
    assert "does not allow" in await failure(guarded.read("other", "a")), "a cached value is not for every tenant"
    uncached = GuardedProvider("plug", slow, {"default": ["*"]}, cache_s=0)
    before = slow.reads
    for _ in range(2):
        await uncached.read("default", "a")
    assert slow.reads == before + 2


@pytest.fixture(params=["documented", "vault"])
async def kv(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[KvServer | VaultServer]:
    """A server with the documented protocol, and the real one if it is built. Only the former has a namespace."""
    folder = tmp_path / "kv"
    folder.mkdir()
    server = KvServer(folder, namespace="team") if request.param == "documented" else VaultServer(folder)
    await server.start()
    try:
        await server.put("apps/etl", {"password": VALUE, "user": "etl"})
        await server.put("apps/one", {"only": VALUE})
        await server.put("apps/gone", {"only": VALUE})
        await server.remove("apps/gone")
        yield server
    finally:
        server.kill()


async def test_a_kv_engine_is_read(tmp_path: Path, kv: KvServer | VaultServer) -> None:
    token = tmp_path / "token"
    token.write_text("root-token\n")
    namespace = "namespace = 'team'\n" if isinstance(kv, KvServer) else ""
    text = (
        f"[kv]\nkind = 'vault'\nurl = '{kv.url}'\ntoken_file = '{token}'\n{namespace}cache_s = 0\n"
        "timeout_s = 2\nallow = { default = ['apps/*'] }"
    )
    source = providers(tmp_path, text)["kv"]
    assert await source.read("default", "apps/etl#password") == VALUE
    assert await source.read("default", "apps/one") == VALUE
    if isinstance(kv, KvServer):
        assert kv.requests == ["/v1/secret/data/apps/etl", "/v1/secret/data/apps/one"]
    for path, reason in (
        ("apps/etl", "has 2 fields; name one: PATH#FIELD"),
        ("apps/etl#nothing", "no field nothing"),
        ("apps/none", "there is nothing at apps/none"),
        ("apps/gone", "there is nothing at apps/gone"),
    ):
        assert reason in await failure(source.read("default", path))
    await kv.put("apps/one", {"only": VALUE[::-1]})
    assert await source.read("default", "apps/one") == VALUE[::-1], "the current version"
    await kv.put("apps/one", {"only": VALUE})
    token.write_text("expired")
    assert "no permission" in await failure(source.read("default", "apps/one"))
    token.write_text("root-token")
    assert await source.read("default", "apps/one") == VALUE, "the token is read again"
    kv.freeze()
    assert "did not answer within 2 s" in await failure(source.read("default", "apps/one"))
    kv.thaw()
    await kv.seal()
    assert "sealed or down" in await failure(source.read("default", "apps/one"))
    kv.kill()
    assert "the provider 'kv' failed: cannot connect" in await failure(source.read("default", "apps/one"))
    token.unlink()
    assert "cannot read the token file" in await failure(source.read("default", "apps/one"))
    await source.close()


async def test_a_policy_of_the_server_restricts_the_token_of_the_provider(tmp_path: Path) -> None:
    """The policy that the documentation states is enough, and nothing beyond it is readable."""
    kv = VaultServer(tmp_path / "kv")
    await kv.start()
    try:
        for path in ("apps/etl", "other/etl"):
            await kv.put(path, {"password": VALUE})
        token = tmp_path / "token"
        token.write_text(await kv.token('path "secret/data/apps/*" { capabilities = ["read"] }'))
        text = f"[kv]\nkind = 'vault'\nurl = '{kv.url}'\ntoken_file = '{token}'\nallow = {{ default = ['*'] }}"
        source = providers(tmp_path, text)["kv"]
        assert await source.read("default", "apps/etl#password") == VALUE
        assert "no permission" in await failure(source.read("default", "other/etl#password"))
        await source.close()
    finally:
        kv.kill()


async def test_a_kv_engine_behind_tls_needs_its_authority(tmp_path: Path) -> None:
    key, certificate = make_certificate(tmp_path)
    server = KvServer(tmp_path / "kv", certificate, key, data={"a": {"v": VALUE}})
    await server.start()
    token = tmp_path / "token"
    token.write_text("root-token")
    settings = f"kind = 'vault'\nurl = '{server.url}'\ntoken_file = '{token}'\nallow = {{ default = ['a'] }}"
    found = providers(tmp_path, f"[known]\n{settings}\nca_file = '{certificate}'\n[unknown]\n{settings}")
    try:
        assert await found["known"].read("default", "a") == VALUE
        assert "certificate" in await failure(found["unknown"].read("default", "a"))
    finally:
        server.kill()
        for source in found.values():
            await source.close()


def test_signatures_are_those_of_the_documentation() -> None:
    """The request and signature of the example in AWS's description of Signature Version 4 test suite: post-vanilla."""
    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    at = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    headers = {"Host": "example.amazonaws.com"}
    signed = signed_headers(headers, b"", credentials, region="us-east-1", service="service", at=at)
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request,"
        " SignedHeaders=host;x-amz-date,"
        " Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    )


CREDENTIALS = Credentials("AKIAEXAMPLE", "secret-of-the-account", "session-token")
BOTOCORE = """
import datetime, json, sys
import botocore.auth, botocore.awsrequest, botocore.credentials

given = json.load(sys.stdin)
at = datetime.datetime.fromisoformat(given["at"])
botocore.auth.get_current_datetime = lambda remove_tzinfo=True: at.replace(tzinfo=None)
signed = []
for headers, body, keys in given["requests"]:
    request = botocore.awsrequest.AWSRequest("POST", f"https://{headers['Host']}/", headers=headers, data=body.encode())
    credentials = botocore.credentials.Credentials(*keys)
    botocore.auth.SigV4Auth(credentials, "secretsmanager", given["region"]).add_auth(request)
    signed.append(request.headers["Authorization"])
print(json.dumps(signed))
"""


def test_signatures_are_those_of_botocore() -> None:
    """AWS's own signer signs the same requests, with and without a session token, in its own process."""
    program = MOTO / "bin/python"
    if not program.exists():
        pytest.skip("moto is not installed (make install-system)")
    at, region = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC), "eu-central-1"
    plain = {
        "Host": "secretsmanager.eu-central-1.amazonaws.com",
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": "secretsmanager.GetSecretValue",
    }
    local = plain | {"Host": "127.0.0.1:4566", "X-Amz-Target": "  secretsmanager.GetSecretValue   twice "}
    requests = [
        (headers, body, keys)
        for headers in (plain, local)
        for body in ("", '{"SecretId":"prod/db"}', '{"SecretId":"straße/" }')
        for keys in (("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), ("ASIA", "k/+=", "token/+=="))
    ]
    given = msgspec.json.encode({"at": at, "region": region, "requests": requests})
    done = subprocess.run([program, "-c", BOTOCORE], input=given, capture_output=True, check=True, timeout=60)
    own = [
        signed_headers(headers, body.encode(), Credentials(*keys), region=region, service="secretsmanager", at=at)[
            "authorization"
        ]
        for headers, body, keys in requests
    ]
    assert len(set(own)) == len(requests)
    assert own == msgspec.json.decode(done.stdout)


async def aws_call(url: str, action: str, **body: Any) -> None:
    host, data = url.removeprefix("http://"), msgspec.json.encode(body)
    headers = {
        "Host": host,
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": f"secretsmanager.{action}",
    }
    at = instant(SystemClock().now_ms())
    signed = signed_headers(headers, data, CREDENTIALS, region="eu-west-1", service="secretsmanager", at=at)
    client = HttpClient(url, {})
    answer = await client.request("POST", "/", data, headers={k: v for k, v in signed.items() if k != "host"})
    assert answer.status == 200, answer.body
    client.close()


async def test_aws_secrets_manager(tmp_path: Path) -> None:
    server = MotoServer(tmp_path / "moto")
    await server.start()
    file = tmp_path / "credentials"
    file.write_text(
        f"[mainspring]\naws_access_key_id = {CREDENTIALS.access_key}\n"
        f"aws_secret_access_key = {CREDENTIALS.secret_key}\naws_session_token = {CREDENTIALS.session_token}\n"
    )
    text = (
        f"[aws]\nkind = 'aws'\nregion = 'eu-west-1'\nendpoint = '{server.url}'\ncredentials_file = '{file}'\n"
        "profile = 'mainspring'\ncache_s = 0\ntimeout_s = 30\nallow = { default = ['prod/*'] }"
    )
    source = providers(tmp_path, text)["aws"]
    try:
        await aws_call(server.url, "CreateSecret", Name="prod/plain", SecretString=VALUE, ClientRequestToken="a" * 36)
        fields = msgspec.json.encode({"password": VALUE, "port": 5432}).decode()
        await aws_call(server.url, "CreateSecret", Name="prod/db", SecretString=fields, ClientRequestToken="b" * 36)
        assert await source.read("default", "prod/plain") == VALUE
        assert await source.read("default", "prod/db#password") == VALUE
        for path, reason in (
            ("prod/nothing", "there is nothing at prod/nothing"),
            ("prod/db#port", "is not text"),
            ("prod/plain#x", "not a JSON object"),
        ):
            assert reason in await failure(source.read("default", path))
        file.write_text("[other]\n")
        assert "cannot read the profile mainspring" in await failure(source.read("default", "prod/plain"))
    finally:
        server.kill()
        await source.close()
