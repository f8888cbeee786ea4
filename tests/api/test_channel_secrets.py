"""Secrets of channels and triggers: encrypted in the database, or references to secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mainspring import wire
from mainspring.alerts.sign import verified
from mainspring.cli.private_file import write_private
from mainspring.client import AsyncClient
from mainspring.domain.channel import PagerDutyTarget, SlackTarget, SmtpTarget, Target, WebhookTarget
from mainspring.domain.errors import Conflict, Invalid
from mainspring.domain.trigger import WebhookSource
from mainspring.embedded.server import EmbeddedServer
from mainspring.vault.keyring import new_key_line
from tests.conftest import Cluster, clone, started
from tests.support.http_receiver import receiving, reply
from tests.support.webhook_sender import github

pytestmark = pytest.mark.anyio

KEY = base64.b64encode(b"0123456789-of-a-hook-secret").decode()
SECRET = f"whsec_{KEY}"
URL = "https://example.com/hook"
LOOPBACK = ("127.0.0.1",)


@pytest.fixture
async def own_url(postgres: EmbeddedServer) -> str:
    """A database for servers that the test starts itself."""
    return await clone(postgres)


@asynccontextmanager
async def serving(url: str, **config: Any) -> AsyncIterator[tuple[Cluster, AsyncClient]]:
    async with started(url, allow_net=LOOPBACK, **config) as cluster, cluster.client() as client:
        yield cluster, client


async def rows_of(cluster: Cluster, table: str) -> list[dict[str, Any]]:
    async with cluster.database.connection() as connection:
        return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY name")]


async def make_plain(cluster: Cluster, *, channels: dict[str, Any], triggers: dict[str, Any]) -> None:
    """Write secrets as a server before encryption did, which leaves the envelope as it is."""
    async with cluster.database.connection() as connection:
        for table, found in (("channels", channels), ("triggers", triggers)):
            for name, secrets in found.items():
                await connection.execute(f"UPDATE {table} SET secrets = $2 WHERE name = $1", name, secrets)


async def add_job(client: AsyncClient, name: str) -> None:
    await client.create_job({"name": name, "task": {"kind": "shell", "argv": ["true"]}})


async def send_hook(cluster: Cluster, trigger: wire.Trigger, secret: str, number: int) -> int:
    body = json.dumps({"n": number}).encode()
    async with httpx2.AsyncClient(base_url=cluster.url) as http:
        assert trigger.path is not None
        answer = await http.post(trigger.path, content=body, headers=github(secret, body, delivery=f"d-{number}"))
    return answer.status_code


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (WebhookTarget(URL, SECRET), SECRET),
        (SlackTarget("https://hooks.example.com/services/T0/B0/s3cr3t-path"), "s3cr3t-path"),
        (PagerDutyTarget("r0uting-k3y"), "r0uting-k3y"),
        (SmtpTarget("m.example.com", "a@b.c", ("d@e.f",), username="u", password="m41l-pass"), "m41l-pass"),
    ],
)
async def test_a_new_channel_has_no_plain_text_in_its_row(
    cluster: Cluster, client: AsyncClient, target: Target, value: str
) -> None:
    made = await client.add_channel(wire.NewChannel(name="sealed", target=target))
    (row,) = [row for row in await rows_of(cluster, "channels") if row["name"] == "sealed"]
    assert row["secrets"] == {} and row["key_id"] == "test-1" and value.encode() not in row["envelope"]
    assert value not in str(row) and value not in str(made) and made.secrets
    await client.delete_channel("sealed")


async def test_a_row_copied_to_another_channel_does_not_decrypt(cluster: Cluster, client: AsyncClient) -> None:
    async with receiving(lambda _: reply()) as server:
        for name in ("first", "second"):
            await client.add_channel(wire.NewChannel(name=name, target=WebhookTarget(server.url())))
        async with cluster.database.connection() as connection:
            await connection.execute(
                "UPDATE channels t SET envelope = f.envelope FROM channels f"
                " WHERE t.name = 'second' AND f.name = 'first' AND t.tenant_id = f.tenant_id"
            )
        tested = await client.test_channel("second")
        assert not tested.delivered and "the stored value of channel 'second' does not decrypt" in (tested.error or "")
        assert server.got == []
    for name in ("first", "second"):
        await client.delete_channel(name)


async def test_a_server_encrypts_what_earlier_ones_have_left(own_url: str) -> None:
    """Rows in plain text work without a key; the first start with one encrypts them, and they still work."""
    async with receiving(lambda _: reply()) as server:
        async with serving(own_url) as (cluster, client):
            await add_job(client, "left")
            await client.add_channel(wire.NewChannel(name="hook", target=WebhookTarget(server.url(), SECRET)))
            await client.add_channel(wire.NewChannel(name="slack", target=SlackTarget(server.url("/s1-path"))))
            source = WebhookSource(scheme="github")
            made = await client.add_trigger(wire.NewTrigger(name="left", job="left", source=source))
            await make_plain(
                cluster,
                channels={"hook": {"secret": SECRET}, "slack": {"url": server.url("/s2-path")}},
                triggers={"left": {"current": "trigger-secret-0123456789"}},
            )
            async with cluster.database.connection() as connection:
                await connection.execute("UPDATE channels SET key_id = NULL, envelope = NULL")
                await connection.execute("UPDATE triggers SET key_id = NULL, envelope = NULL")
        async with serving(own_url, secret_key_file=None) as (cluster, client):
            assert (await client.test_channel("hook")).delivered
            assert await send_hook(cluster, made, "trigger-secret-0123456789", 1) == 200
            notes = (await client.doctor()).notes
            assert any("3 channels and triggers have their secrets in plain text" in note for note in notes)
            for refused in (
                client.add_channel(wire.NewChannel(name="new", target=WebhookTarget(server.url()))),
                client.put_channel("hook", wire.ChannelSpec(target=WebhookTarget(server.url(), SECRET + "AAAA"))),
                client.add_trigger(wire.NewTrigger(name="new", job="left", source=source)),
                client.rotate_trigger("left"),
            ):
                with pytest.raises(Conflict, match="--secret-key-file"):
                    await refused
            kept = wire.ChannelSpec(target=WebhookTarget(server.url()), events=["alert.firing"])
            assert (await client.put_channel("hook", kept)).events == ["alert.firing"], "its secret is not new"
        async with serving(own_url) as (cluster, client):
            rows = await rows_of(cluster, "channels") + await rows_of(cluster, "triggers")
            assert [row["secrets"] for row in rows] == [{}, {}, {}]
            assert all(row["envelope"] is not None and row["key_id"] == "test-1" for row in rows)
            for value in (SECRET, KEY, "s1-path", "s2-path", "trigger-secret"):
                assert value not in str(rows)
            server.got.clear()
            for name in ("hook", "slack"):
                assert (await client.test_channel(name)).delivered
            hook, slack = server.got
            assert slack.line.split()[1] == "/s2-path"
            now_s = int(hook.headers["webhook-timestamp"])
            assert verified(SECRET, hook.headers, hook.body, now_s=now_s)
            assert await send_hook(cluster, made, "trigger-secret-0123456789", 2) == 200
            assert await send_hook(cluster, made, "another-secret-9876543210", 3) == 401
            assert not [note for note in (await client.doctor()).notes if "plain" in note]


async def test_an_older_server_that_edits_an_encrypted_channel_wins(cluster: Cluster, client: AsyncClient) -> None:
    """It writes plain text beside the envelope, which it does not know; the next encryption keeps what it wrote."""
    async with receiving(lambda _: reply()) as server:
        await add_job(client, "mixed")
        await client.add_channel(wire.NewChannel(name="mixed", target=WebhookTarget(server.url())))
        source = WebhookSource(scheme="github")
        trigger = await client.add_trigger(wire.NewTrigger(name="mixed", job="mixed", source=source))
        await make_plain(
            cluster,
            channels={"mixed": {"secret": SECRET}},
            triggers={"mixed": {"current": "secret-of-an-older-server"}},
        )
        for encrypted in (False, True):
            if encrypted:
                found = await client.encrypt_secrets()
                assert (found.encrypted, found.plain) == (2, 0)
            assert await send_hook(cluster, trigger, "secret-of-an-older-server", int(encrypted)) == 200
    assert (await client.encrypt_secrets()).encrypted == 0
    (row,) = [row for row in await rows_of(cluster, "channels") if row["name"] == "mixed"]
    assert row["secrets"] == {} and SECRET not in str(row)
    assert (await client.audit(action="secret.encrypt")).items[0].details["values"] == 0
    await client.delete_channel("mixed")
    await client.delete_trigger("mixed")


async def test_channels_and_triggers_move_to_another_master_key(own_url: str, tmp_path: Path) -> None:
    file, old, new = tmp_path / "keys", new_key_line("old"), new_key_line("new")
    write_private(file, old)
    async with receiving(lambda _: reply()) as server:
        async with serving(own_url, secret_key_file=str(file)) as (cluster, client):
            await add_job(client, "moved")
            await client.add_channel(wire.NewChannel(name="moved", target=WebhookTarget(server.url())))
            source = WebhookSource(scheme="github")
            made = await client.add_trigger(wire.NewTrigger(name="moved", job="moved", source=source))
            assert made.secret is not None
            write_private(file, f"{new}\n{old}")
            found = await client.rotate_secret_key()
            assert found.keys["old"] == 0 and found.rewrapped == found.keys["new"] >= 2
            write_private(file, new)
        async with serving(own_url, secret_key_file=str(file)) as (cluster, client):
            assert (await client.test_channel("moved")).delivered, "the old key is not needed any more"
            assert await send_hook(cluster, made, made.secret, 1) == 200
            await client.delete_channel("moved")
            await client.delete_trigger("moved")


async def test_a_channel_refers_to_a_secret(own_url: str) -> None:
    async with receiving(lambda _: reply()) as server, serving(own_url) as (_, client):
        await client.put_secret("sign", wire.SecretSpec(value=SECRET, channels=["ops-*"], hosts=["127.0.0.1"]))
        made = await client.add_channel(
            wire.NewChannel(name="ops-a", target=WebhookTarget(server.url(), "secret://sign"))
        )
        assert made.target == {"url": server.url(), "secret": "secret://sign"} and made.secret is None
        assert (await client.test_channel("ops-a")).delivered
        (got,) = server.got
        assert verified(SECRET, got.headers, got.body, now_s=int(got.headers["webhook-timestamp"]))
        assert (await client.secret("sign")).last_used_at is not None
        await client.put_secret("path", wire.SecretSpec(value=server.url("/s3cr3t"), channels=["ops-b"]))
        await client.add_channel(wire.NewChannel(name="ops-b", target=SlackTarget("secret://path")))
        assert (await client.test_channel("ops-b")).delivered and server.got[-1].line.split()[1] == "/s3cr3t"
        for name, target, message in (
            ("ops-c", WebhookTarget(server.url(), "secret://nothing"), "there is no secret 'nothing'"),
            ("ops-c", WebhookTarget(server.url(), "secret://no such"), "is not the name of a secret"),
            ("dev", WebhookTarget(server.url(), "secret://sign"), "may not be used by the channel 'dev'"),
            ("ops-c", WebhookTarget(URL, "secret://sign"), "may not go to the host 'example.com'"),
            ("ops-c", WebhookTarget("secret://sign"), "not an http or https URL"),
        ):
            with pytest.raises(Invalid, match=message) as refused:
                await client.add_channel(wire.NewChannel(name=name, target=target))
            assert SECRET not in str(refused.value)
        entry = (await client.audit(action="channel.create")).items[-1]
        assert entry.details["uses_secrets"] == ["sign"]


async def test_a_reference_that_stops_to_fit_fails_the_delivery_with_its_reason(own_url: str) -> None:
    async with receiving(lambda _: reply()) as server, serving(own_url) as (_, client):
        await client.put_secret("url", wire.SecretSpec(value=server.url("/s3cr3t"), channels=["to"]))
        await client.add_channel(wire.NewChannel(name="to", target=SlackTarget("secret://url")))
        for spec, error in (
            (wire.SecretSpec(value="not-a-url-at-all", channels=["to"]), "cannot be used here: this is not an http"),
            (wire.SecretSpec(value="x" * 3000, channels=["to"]), "too long for a slack channel"),
            (wire.SecretSpec(value=server.url("/s3cr3t"), channels=["from"]), "may not be used by the channel"),
            (
                wire.SecretSpec(value=server.url("/s3cr3t"), channels=["to"], hosts=["example.com"]),
                "may not go to the host '127.0.0.1'",
            ),
        ):
            await client.put_secret("url", spec)
            tested = await client.test_channel("to")
            assert not tested.delivered and error in (tested.error or ""), tested
            assert "s3cr3t" not in (tested.error or "") and "not-a-url" not in (tested.error or "")
        await client.delete_secret("url")
        assert "there is no secret 'url'" in ((await client.test_channel("to")).error or "")
        assert server.got == []


async def test_a_trigger_refers_to_a_secret(cluster: Cluster, client: AsyncClient) -> None:
    await add_job(client, "started")
    source, value = WebhookSource(scheme="github"), "github-signing-secret"
    new = wire.NewTrigger(name="gh-push", job="started", source=source, secret="secret://gh")
    with pytest.raises(Invalid, match="there is no secret 'gh'"):
        await client.add_trigger(new)
    await client.put_secret("gh", wire.SecretSpec(value=value, jobs=["*"]))
    with pytest.raises(Invalid, match="may not be used by the trigger 'gh-push'"):
        await client.add_trigger(new)
    await client.put_secret("gh", wire.SecretSpec(value=value, triggers=["gh-*"]))
    made = await client.add_trigger(new)
    assert (made.secret, made.secret_reference) == (None, "secret://gh")
    assert await send_hook(cluster, made, value, 1) == 200
    await client.rotate_secret("gh", "rotated-signing-secret")
    assert await send_hook(cluster, made, "rotated-signing-secret", 3) == 200
    rotated = await client.rotate_trigger("gh-push", overlap="1h")
    assert rotated.secret is not None and rotated.secret_reference is None
    for secret, number in ((rotated.secret, 4), ("rotated-signing-secret", 5)):
        assert await send_hook(cluster, made, secret, number) == 200, "the reference is the previous secret"
    back = await client.rotate_trigger("gh-push", secret="secret://gh", overlap="0s")
    assert (back.secret, back.secret_reference) == (None, "secret://gh")
    await client.delete_secret("gh")
    assert await send_hook(cluster, made, "rotated-signing-secret", 6) == 503
    shown = await client.get_trigger("gh-push")
    assert shown.last_rejection is not None and "there is no secret 'gh'" in shown.last_rejection
    await client.delete_trigger("gh-push")
