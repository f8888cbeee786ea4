"""Alerts, channels and silences over real HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.alerts.targets import secrets_of
from mainspring.client import AsyncClient
from mainspring.domain.alert import BUILT_IN, Rule
from mainspring.domain.channel import PagerDutyTarget, SlackTarget, SmtpTarget, WebhookTarget
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.store import channels
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

URL = "https://example.com/hook"
SECRETS = ("sl4ck-s3cret", "p4ger-s3cret", "m41l-s3cret")


async def test_no_answer_ever_has_a_secret_of_a_channel(
    cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient
) -> None:
    made = await client.add_channel(wire.NewChannel(name="hook", target=WebhookTarget(URL)))
    assert made.secret is not None and made.secret.startswith("whsec_"), "made for it, and shown once"
    for name, target in (
        ("slack", SlackTarget(f"{URL}/{SECRETS[0]}")),
        ("pager", PagerDutyTarget(SECRETS[1])),
        ("mail", SmtpTarget("mail.example.com", "a@b.c", ("d@e.f",), username="u", password=SECRETS[2])),
    ):
        answer = await client.add_channel(wire.NewChannel(name=name, target=target, events=["alert.firing"]))
        assert answer.secret is None
    for path in ("/api/v1/channels", "/api/v1/channels/hook", "/api/v1/channels/mail", "/api/v1/deliveries"):
        text = (await http.get(path)).text
        assert not any(secret in text for secret in (*SECRETS, made.secret)), path
    shown = {channel.name: channel for channel in (await client.channels()).items}
    assert {name: channel.secrets for name, channel in shown.items()} == {
        "hook": ["secret"],
        "mail": ["password"],
        "pager": ["routing_key"],
        "slack": ["url"],
    }
    assert shown["mail"].target["username"] == "u"


async def test_a_secret_that_is_left_out_stays(cluster: Cluster, client: AsyncClient) -> None:
    await client.add_channel(wire.NewChannel(name="kept", target=PagerDutyTarget("k3y", URL)))
    changed = await client.put_channel(
        "kept", wire.ChannelSpec(target=PagerDutyTarget(url=URL), events=["alert.firing"])
    )
    assert (changed.target, changed.secrets, changed.events) == ({"url": URL}, ["routing_key"], ["alert.firing"])
    assert (await stored(cluster, "kept"))["routing_key"] == "k3y"
    with pytest.raises(Invalid, match="a slack channel needs its url"):
        await client.put_channel("kept", wire.ChannelSpec(target=SlackTarget()))


WEBHOOK_SECRET = "whsec_" + "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"
MAIL = SmtpTarget("mail.example.com", "a@b.c", ("d@e.f",), username="u", password="m41l")


@pytest.mark.parametrize(
    ("target", "moved", "secret"),
    [
        (WebhookTarget(URL, WEBHOOK_SECRET), {"url": "https://elsewhere.example/hook"}, "secret"),
        (WebhookTarget(URL, WEBHOOK_SECRET), {"url": f"{URL}/other"}, "secret"),
        (PagerDutyTarget("k3y"), {"url": URL}, "routing_key"),
        (MAIL, {"host": "mail.elsewhere.example"}, "password"),
        (MAIL, {"port": 2525}, "password"),
        (MAIL, {"tls": "tls"}, "password"),
        (MAIL, {"username": "another"}, "password"),
    ],
)
async def test_a_secret_does_not_follow_to_another_address(
    cluster: Cluster, client: AsyncClient, target: Any, moved: dict[str, Any], secret: str
) -> None:
    name = f"moved-{uuid4()}"
    await client.add_channel(wire.NewChannel(name=name, target=target))
    elsewhere = msgspec.structs.replace(target, **moved, **{secret: None})
    with pytest.raises(Invalid) as refused:
        await client.put_channel(name, wire.ChannelSpec(target=elsewhere))
    assert refused.value.code == "secret_needed"
    (problem,) = refused.value.problems
    assert problem.pointer == f"/target/{secret}" and problem.hint
    assert await stored(cluster, name) == msgspec.json.decode(msgspec.json.encode(target)) | {"kind": None}, (
        "nothing has changed"
    )
    given = msgspec.structs.replace(elsewhere, **{secret: getattr(target, secret)})
    changed = await client.put_channel(name, wire.ChannelSpec(target=given))
    assert {field: changed.target[field] for field in moved} == moved
    same = msgspec.structs.replace(given, **{secret: None})
    await client.put_channel(name, wire.ChannelSpec(target=same, events=["alert.firing"]))
    assert (await stored(cluster, name))[secret] == getattr(target, secret), "at the same address it stays"


async def stored(cluster: Cluster, name: str) -> dict[str, Any]:
    async with cluster.database.connection() as connection:
        (row,) = await channels.list_channels(connection, tenant=1, name=name)
    return {"kind": None, **row.stored.shown, **secrets_of(cluster.context.vault, row.stored)}


async def test_a_channel_of_another_kind_or_made_again_has_no_old_secret(cluster: Cluster, client: AsyncClient) -> None:
    await client.add_channel(wire.NewChannel(name="turned", target=PagerDutyTarget("k3y", URL)))
    turned = await client.put_channel("turned", wire.ChannelSpec(target=WebhookTarget(URL)))
    assert turned.secret is not None and "k3y" not in str(await stored(cluster, "turned"))
    await client.delete_channel("turned")
    again = await client.add_channel(wire.NewChannel(name="turned", target=WebhookTarget(URL)))
    assert again.secret not in (None, turned.secret)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "UPPER", "target": {"kind": "webhook", "url": URL}}, "/name"),
        ({"name": "x", "target": {"kind": "webhook", "url": "ftp://example.com"}}, "/target/url"),
        ({"name": "x", "target": {"kind": "webhook", "url": "https://u:p@example.com"}}, "/target/url"),
        ({"name": "x", "target": {"kind": "webhook", "url": "https://["}}, "/target/url"),
        ({"name": "x", "target": {"kind": "webhook", "url": URL, "secret": "short"}}, "/target/secret"),
        ({"name": "x", "target": {"kind": "slack"}}, "/target/url"),
        ({"name": "x", "target": {"kind": "smtp", "host": "h", "sender": "x", "to": ["a@b.c"]}}, "/target/sender"),
        (
            {
                "name": "x",
                "target": {
                    "kind": "smtp",
                    "host": "h",
                    "sender": "a@b.c",
                    "to": ["a@b.c"],
                    "username": "u",
                    "password": "p",
                    "tls": "none",
                },
            },
            "/target/tls",
        ),
        ({"name": "x", "target": {"kind": "webhook", "url": URL}, "events": ["execution.paused"]}, "/events/0"),
        ({"name": "x", "target": {"kind": "carrier-pigeon"}}, "/target/kind"),
    ],
)
async def test_a_channel_that_can_not_be_is_refused(
    http: httpx2.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    answer = await http.post("/api/v1/channels", json=body)
    assert answer.status_code == 422
    assert pointer in {error["pointer"] for error in answer.json()["errors"]}


async def test_names_are_taken_once_and_what_is_not_there_is_not_found(client: AsyncClient) -> None:
    new = wire.NewChannel(name="twice", target=WebhookTarget(URL))
    await client.add_channel(new)
    with pytest.raises(Conflict, match="already"):
        await client.add_channel(new)
    await client.delete_channel("twice")
    for asked in (client.channel, client.delete_channel, client.enable_channel, client.test_channel):
        with pytest.raises(NotFound):
            await asked("twice")


async def test_another_tenant_sees_and_changes_nothing(client: AsyncClient, neighbour: AsyncClient) -> None:
    await client.add_channel(wire.NewChannel(name="ours", target=WebhookTarget(URL)))
    rule = Rule(condition="queue_depth", threshold=1.0)
    await client.put_alert_rule("ours", rule)
    assert (await neighbour.channels()).items == []
    for ask in (neighbour.channel, neighbour.delete_channel, neighbour.delete_alert_rule):
        with pytest.raises(NotFound):
            await ask("ours")
    assert {r.name for r in (await neighbour.alert_rules()).items} == set(BUILT_IN)
    with pytest.raises(Invalid, match="channel 'ours' does not exist"):
        await neighbour.put_alert_rule("mine", Rule(condition="queue_depth", threshold=1.0, channels=("ours",)))


async def test_rules_are_written_and_taken_back(client: AsyncClient) -> None:
    changed = await client.put_alert_rule("queue_lag_short", Rule(condition="queue_depth", threshold=7, only="short"))
    assert (changed.built_in, changed.changed, changed.means) == (
        True,
        True,
        "executions waiting in a queue (short): more than 7",
    )
    await client.delete_alert_rule("queue_lag_short")
    rules = {r.name: r for r in (await client.alert_rules()).items}
    assert rules["queue_lag_short"].rule == BUILT_IN["queue_lag_short"] and not rules["queue_lag_short"].changed
    with pytest.raises(NotFound, match="enabled: false"):
        await client.delete_alert_rule("queue_lag_short")


async def test_silences_are_listed_with_who_and_why_and_end(client: AsyncClient, http: httpx2.AsyncClient) -> None:
    made = await client.add_silence(
        wire.NewSilence(matchers={"rule": "*"}, schedule=msgspec_cron("0 2 * * SUN"), lasts="2h", reason="backup")
    )
    (shown,) = (await client.silences()).items
    assert shown == made and shown.reason == "backup" and shown.created_by.startswith("test admin [")
    assert "2 h" in shown.description or "2 hours" in shown.description
    await client.delete_silence(made.silence_id)
    with pytest.raises(NotFound):
        await client.delete_silence(made.silence_id)
    answer = await http.post("/api/v1/silences", json={"matchers": {"rule": "*"}, "end_at": "2020-01-01T00:00:00Z"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/end_at")


def msgspec_cron(expression: str) -> Any:
    from mainspring.domain.schedule.schedule import ScheduleSpec

    return ScheduleSpec(cron=expression)


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/api/v1/alerts", "state=burning"),
        ("/api/v1/alerts", "limit=0"),
        ("/api/v1/alerts", "cursor=2026-01-01T00:00:00"),
        ("/api/v1/deliveries", "state=lost"),
        ("/api/v1/deliveries", "cursor=x"),
        ("/api/v1/deliveries", "limit=501"),
    ],
)
async def test_a_list_refuses_what_it_does_not_know(http: httpx2.AsyncClient, path: str, parameter: str) -> None:
    answer = await http.get(f"{path}?{parameter}")
    assert answer.status_code == 422 and answer.json()["errors"][0]["hint"]


async def test_the_metrics_have_what_fires(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    text = (await http.get("/metrics")).text
    for severity in ("info", "warning", "critical"):
        assert f'mainspring_alerts_firing{{severity="{severity}"}}' in text
    assert "mainspring_results_pending 0.0" in text
