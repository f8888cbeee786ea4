"""Alerts and channels as a browser sees them."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.alerts import channels
from mainspring.alerts.evaluate import AlertEvaluator
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.address import read_networks
from mainspring.domain.channel import SlackTarget, WebhookTarget
from tests.conftest import Cluster
from tests.support.http_receiver import receiving, reply
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert(1)</script>"


async def test_the_first_look_says_what_to_type(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/channels")
    assert "mainspring channels add ops --slack - --event alert.firing" in page.text
    page = await open_page(browser, "/alerts")
    assert "No alerts firing" in page.text and "queue_lag_short" in page.text and "No silences." in page.text


async def test_a_channel_is_shown_without_its_secrets_and_can_be_tried(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = cluster.context.sender
    monkeypatch.setattr(sender._http, "_allowed", read_networks(["127.0.0.1"]))
    async with receiving(lambda _: reply("418 Teapot", HOSTILE.encode())) as server:
        url = server.url("/services/s3cr3t")
        request = wire.NewChannel(name="ops", target=SlackTarget(url), events=["alert.firing"])
        await channels.create(cluster.database, cluster.context.vault, request, tenant=TENANT, by="test")
        page = await open_page(browser, "/channels")
        assert "ops" in page.text and "s3cr3t" not in page.raw_text
        answer = await browser.post("/channels/ops/test", data={"csrf": page.csrf}, headers={"origin": cluster.url})
        assert answer.status_code == 200
    shown = Page(answer.text)
    assert "ops: test message not delivered, status 418" in shown.text and HOSTILE in shown.text
    assert shown.active_parts() == []
    assert len(server.got) == 1
    await sender.close()


async def test_what_fires_is_shown_and_can_be_silenced(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    for service in cluster.server._services:
        if isinstance(service, AlertEvaluator):
            await service.stop()  # it would find that nothing is wrong
    async with cluster.database.connection() as connection:
        await connection.execute(
            "INSERT INTO alerts (alert_id, tenant_id, rule, key, severity, state, value, threshold, summary, since_at,"
            " fired_at) VALUES (gen_random_uuid(), 1, 'by-hand', 'k', 'critical', 'firing', 2, 1, $1, db_now(),"
            " db_now())",
            HOSTILE,
        )
    page = await open_page(browser, "/alerts?rule=by-hand")
    assert "1 alert firing" in page.text and HOSTILE in page.text and page.active_parts() == []
    form = {"csrf": page.csrf, "rule": "by-hand", "lasts": "2h", "reason": HOSTILE}
    answer = await browser.post("/silences", data=form)
    assert answer.status_code == 303
    page = await open_page(browser, "/alerts")
    assert "rule=by-hand" in page.text and "active, ends" in page.text and page.active_parts() == []
    (path,) = {f["action"] for f in page.all("form") if (f.get("action") or "").endswith("/delete")}
    assert path is not None
    assert (await browser.post(path, data={"csrf": page.csrf})).status_code == 303
    assert "No silences." in (await open_page(browser, "/alerts")).text
    bad = await browser.post("/silences", data={"csrf": page.csrf, "rule": "*", "lasts": "soon"})
    assert bad.status_code == 422 and "for example 2h" in bad.text


async def test_a_disabled_channel_can_be_enabled(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    request = wire.NewChannel(name="dead", target=WebhookTarget("https://example.com/x"))
    await channels.create(cluster.database, cluster.context.vault, request, tenant=TENANT, by="test")
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE channels SET disabled_at = db_now(), last_error = 'gone' WHERE name = 'dead'")
    page = await open_page(browser, "/channels")
    assert "disabled" in page.text and "gone" in page.text
    await browser.post("/channels/dead/enable", data={"csrf": page.csrf})
    assert (await channels.get(cluster.database, "dead", tenant=TENANT)).state == "ok"
