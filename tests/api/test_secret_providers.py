"""Secrets whose values a provider keeps: from a server process to a task, and only what the tenant may refer to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.embedded.server import EmbeddedServer
from tests.conftest import clone, started
from tests.support.secret_servers import KvServer, VaultServer

pytestmark = pytest.mark.anyio

VALUE = "hunter2-correct-horse"


@pytest.fixture(params=[KvServer, VaultServer])
async def kv(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[KvServer | VaultServer]:
    server: KvServer | VaultServer = request.param(tmp_path / "kv")
    await server.start()
    for path in ("apps/etl", "apps/other"):
        await server.put(path, {"password": VALUE})
    yield server
    server.kill()


async def test_a_task_gets_a_value_that_a_provider_keeps(
    postgres: EmbeddedServer, tmp_path: Path, kv: KvServer | VaultServer
) -> None:
    token, file = tmp_path / "token", tmp_path / "providers.toml"
    token.write_text("root-token")
    file.write_text(
        f"[kv]\nkind = 'vault'\nurl = '{kv.url}'\ntoken_file = '{token}'\ncache_s = 0\n"
        "allow = { default = ['apps/etl*'] }\n"
    )
    async with started(await clone(postgres), secret_providers=str(file)) as cluster, cluster.client() as client:
        made = await client.put_secret("db", _spec("apps/etl#password"))
        assert (made.provider, made.path, made.key_id) == ("kv", "apps/etl#password", None)
        for path, message in (
            ("apps/other#password", "does not allow this path to the tenant 'default'"),
            ("apps/etl/../other#password", "neither . nor .."),
            ("apps/etl%2f..%2fother", "a path has letters, digits"),
        ):
            with pytest.raises(Invalid, match=message):
                await client.put_secret("other", _spec(path))
        async with cluster.database.connection() as connection:
            tenant = await connection.fetchval("INSERT INTO tenants (name) VALUES ('second') RETURNING tenant_id")
            second = await issue_token(connection, tenant=tenant, name="second", scopes=("admin",))
        async with AsyncClient(cluster.url, second) as neighbour:
            with pytest.raises(Invalid, match="does not allow this path to the tenant 'second'"):
                await neighbour.put_secret("db", _spec("apps/etl#password"))
        if isinstance(kv, KvServer):
            assert kv.requests == [], "what is refused is not even asked for"
        script = 'echo "length ${#P} value $P"'
        task = {"kind": "shell", "argv": [script], "shell": True, "env": {"P": "secret://db"}}
        await client.create_job({"name": "etl", "task": task, "retries": {"max": 0}})
        async with cluster.worker():
            run = (await client.trigger("etl")).execution_id
            assert (await client.wait(run, timeout_s=60)).state == "succeeded"
            (chunk,) = (await client.logs(run)).chunks
            assert f"length {len(VALUE)}" in chunk.text and VALUE not in chunk.text
            kv.kill()
            run = (await client.trigger("etl")).execution_id
            ended = await client.wait(run, timeout_s=60)
        assert ended.state == "failed" and "the provider 'kv' failed: cannot connect" in (ended.error or "")


def _spec(path: str) -> wire.SecretSpec:
    return wire.SecretSpec(provider="kv", path=path, jobs=["etl"])
