"""Secrets over real HTTP: values go in and never come out."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.private_file import write_private
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound
from mainspring.store.secrets import secrets_by_name
from mainspring.vault.keyring import new_key_line, open_keyring
from mainspring.vault.vault import Vault
from tests.conftest import Cluster, started
from tests.support.api_tokens import Issue

pytestmark = pytest.mark.anyio

VALUE = "hunter2-correct-horse"
OTHER = "s3cond-value-of-it"


async def everything(cluster: Cluster) -> str:
    """The secrets and the audit log as the database has them."""
    async with cluster.database.connection() as connection:
        found = await connection.fetchval(
            "SELECT string_agg(row_text, ' ') FROM (SELECT t::text || encode(envelope, 'escape') AS row_text"
            " FROM secrets t UNION ALL SELECT a::text FROM audit a) AS every"
        )
    return str(found)


async def opened(cluster: Cluster, file: Path, name: str) -> str:
    """The value of a secret, read with the keys of a file."""
    keyring = open_keyring(file=str(file), text=None, descriptor=None)
    async with cluster.database.connection() as connection:
        rows = await secrets_by_name(connection, tenant=1, names=[name])
    return await Vault(keyring).value_of(rows[name])


async def test_a_value_is_written_and_never_returned(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    made = await client.put_secret("db", wire.SecretSpec(value=VALUE, jobs=["etl-*"], description="of the warehouse"))
    assert (made.name, made.version, made.jobs, made.key_id) == ("db", 1, ["etl-*"], "test-1")
    edited = await client.put_secret("db", wire.SecretSpec(jobs=["etl-*"], queues=["short"]))
    assert edited.version == 1 and edited.queues == ["short"], "the value stays, and so does its version"
    rotated = await client.rotate_secret("db", OTHER)
    assert rotated.version == 2 and rotated.queues == ["short"] and rotated.updated_at >= made.updated_at
    for path in ("/api/v1/secrets", "/api/v1/secrets/db", "/api/v1/audit", "/api/v1/secret-keys"):
        text = (await http.get(path)).text
        assert VALUE not in text and OTHER not in text, path
    stored = await everything(cluster)
    assert VALUE not in stored and OTHER not in stored
    actions = [entry.action for entry in (await client.audit(action="secret")).items]
    assert actions == ["secret.rotate", "secret.edit", "secret.create"]
    await client.delete_secret("db")
    with pytest.raises(NotFound, match="there is no secret 'db'"):
        await client.secret("db")


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("bad name", wire.SecretSpec(value=VALUE), "is not the name of a secret"),
        ("x", wire.SecretSpec(), "a value is needed"),
        ("x", wire.SecretSpec(value="abc"), "at least 4 are needed"),
        ("x", wire.SecretSpec(value="abc\0def"), "NUL"),
        ("x", wire.SecretSpec(value=VALUE, jobs=["a b"]), "/jobs/0"),
        ("x", wire.SecretSpec(value=VALUE, queues=["UPPER"]), "/queues/0"),
        ("x", wire.SecretSpec(value=VALUE, hosts=["https://example.com"]), "/hosts/0"),
        ("x", wire.SecretSpec(value=VALUE, provider="file", path="x"), "not both"),
        ("x", wire.SecretSpec(provider="nowhere", path="x"), "no provider 'nowhere'"),
        ("x", wire.SecretSpec(value=VALUE, path="x"), "go together"),
    ],
)
async def test_bad_input_is_refused_and_not_quoted(
    client: AsyncClient, name: str, spec: wire.SecretSpec, message: str
) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        await client.put_secret(name, spec)
    assert VALUE not in str(refused.value)
    assert (await client.secrets()).items == []


async def test_another_tenant_has_its_own_secrets(client: AsyncClient, neighbour: AsyncClient) -> None:
    await client.put_secret("mine", wire.SecretSpec(value=VALUE))
    for refused in (
        neighbour.secret("mine"),
        neighbour.rotate_secret("mine", OTHER),
        neighbour.delete_secret("mine"),
        neighbour.put_secret("mine", wire.SecretSpec()),
    ):
        with pytest.raises((NotFound, Invalid)):
            await refused
    assert (await neighbour.secrets()).items == []
    with pytest.raises(Forbidden, match="cluster administrator"):
        await neighbour.rotate_secret_key()
    await client.delete_secret("mine")


async def test_writing_needs_its_own_scope(cluster: Cluster, issue: Issue) -> None:
    async with AsyncClient(cluster.url, await issue("read", "write", "operate")) as writer:
        with pytest.raises(Forbidden, match="'secrets'"):
            await writer.put_secret("x", wire.SecretSpec(value=VALUE))
        assert (await writer.secrets()).items == []
    async with AsyncClient(cluster.url, await issue("read", "secrets")) as keeper:
        await keeper.put_secret("x", wire.SecretSpec(value=VALUE))
        await keeper.delete_secret("x")


async def test_a_server_without_a_key_stores_nothing(database_url: str) -> None:
    async with started(database_url, secret_key_file=None) as cluster, cluster.client() as client:
        with pytest.raises(Conflict, match="--secret-key-file"):
            await client.put_secret("x", wire.SecretSpec(value=VALUE))
        assert (await client.secrets()).items == []


async def test_values_move_to_another_master_key(database_url: str, tmp_path: Path) -> None:
    file, old, new = tmp_path / "keys", new_key_line("old"), new_key_line("new")
    write_private(file, old)
    async with started(database_url, secret_key_file=str(file)) as cluster, cluster.client() as client:
        for n in range(3):
            await client.put_secret(f"moved-{n}", wire.SecretSpec(value=f"{VALUE}-{n}"))
        write_private(file, f"{new}\n{old}")
        found = await client.rotate_secret_key()
        assert (found.current, found.keys["new"], found.keys["old"], found.rewrapped) == ("new", 3, 0, 3)
        assert (await client.rotate_secret_key()).rewrapped == 0
        assert {secret.key_id for secret in (await client.secrets()).items} == {"new"}
        write_private(file, new)
        assert await opened(cluster, file, "moved-1") == f"{VALUE}-1", "the old key is not needed any more"
        for n in range(3):
            await client.delete_secret(f"moved-{n}")
