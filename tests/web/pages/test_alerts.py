"""Alerts and channels as a browser sees them."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.alerts import channels, rules
from mainspring.alerts.evaluate import AlertEvaluator
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.address import read_networks
from mainspring.domain.alert import Rule
from mainspring.domain.channel import SlackTarget, WebhookTarget
from mainspring.views import audit as audit_views
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
        await channels.create(cluster.database, request, tenant=TENANT, by="test")
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
    await channels.create(cluster.database, request, tenant=TENANT, by="test")
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE channels SET disabled_at = db_now(), last_error = 'gone' WHERE name = 'dead'")
    page = await open_page(browser, "/channels")
    assert "disabled" in page.text and "gone" in page.text
    await browser.post("/channels/dead/enable", data={"csrf": page.csrf})
    assert (await channels.get(cluster.database, "dead", tenant=TENANT)).state == "ok"


def rule_form(page: Page, name: str) -> dict[str, str]:
    """The values of the form of a rule; the page also has the form that mutes alerts."""
    values = {a["name"]: a.get("value") or "" for a in page.all("input") if a.get("type") not in ("checkbox", None)}
    values |= {
        a["name"]: a.get("value") or "" for a in page.all("input") if a.get("name") in ("threshold", "for", "only")
    }
    values |= {a["name"]: "1" for a in page.all("input") if a.get("type") == "checkbox" and "checked" in a}
    assert f"/alerts/rules/{name}" in {f.get("action") for f in page.all("form")}
    return {key: value for key, value in values.items() if key and value is not None}


async def test_a_rule_is_edited_in_place(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    request = wire.NewChannel(name="pager", target=WebhookTarget("https://example.com/x"))
    await channels.create(cluster.database, request, tenant=TENANT, by="test")
    page = await open_page(browser, "/alerts?edit=queue_lag_short")
    form = rule_form(page, "queue_lag_short")
    assert (form["threshold"], form["only"], form["enabled"], form["seen"]) == ("5000", "short", "1", "")
    sent = form | {"threshold": "20000", "for": "2m", "severity": "critical", "to:pager": "1"}
    answer = await browser.post("/alerts/rules/queue_lag_short", data=sent)
    assert (answer.status_code, answer.headers["location"]) == (303, "/alerts#rule-queue_lag_short")
    found = {r.name: r for r in (await rules.list_rules(cluster.database, tenant=TENANT)).items}["queue_lag_short"]
    assert found.rule == Rule(
        condition="queue_depth", threshold=20000, for_s=120, severity="critical", only="short", channels=("pager",)
    )
    page = await open_page(browser, "/alerts")
    assert "more than 20,000, for 120 s" in page.text
    audited = await audit_views.list_entries(cluster.database, tenant=TENANT, action="rule.write", limit=1)
    assert audited.items[0].name == "queue_lag_short" and "threshold" in str(audited.items[0].details)
    page = await open_page(browser, "/alerts?edit=queue_lag_short")
    assert "Reset to built-in" in page.text
    reset = await browser.post("/alerts/rules/queue_lag_short/reset", data={"csrf": page.csrf})
    assert reset.status_code == 303
    assert "more than 5,000" in (await open_page(browser, "/alerts")).text


async def test_what_is_wrong_with_a_rule_stands_beside_its_field(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/alerts?edit=success_rate_low")
    form = rule_form(page, "success_rate_low")
    for changed, field, says in (
        ({"threshold": "much"}, "threshold", "'much' is not a number"),
        ({"threshold": "inf"}, "threshold", "'inf' is not a number"),
        ({"for": "soon"}, "for", "'soon' is not a duration"),
        ({"for": "2d"}, "for", "86400"),
        ({"to:nowhere": "1"}, "channels", "channel 'nowhere' does not exist"),
    ):
        answer = await browser.post("/alerts/rules/success_rate_low", data=form | changed)
        shown = Page(answer.text)
        assert answer.status_code == 422, changed
        assert f"f-{field}-error" in shown.ids() and says in shown.text, changed
        assert (shown.active_parts(), "rule-success_rate_low" in shown.ids()) == ([], True)
    hostile = await browser.post("/alerts/rules/success_rate_low", data=form | {"threshold": HOSTILE})
    assert HOSTILE[:10] in Page(hostile.text).text and Page(hostile.text).active_parts() == []


async def test_a_rule_that_another_user_changed_is_not_overwritten(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    page = await open_page(browser, "/alerts?edit=sla_low")
    form = rule_form(page, "sla_low")
    theirs = Rule(condition="sla_ratio", threshold=0.5)
    await rules.put_rule(cluster.database, "sla_low", theirs, tenant=TENANT, by="colleague")
    refused = await browser.post("/alerts/rules/sla_low", data=form | {"threshold": "0.7"})
    shown = Page(refused.text)
    assert refused.status_code == 409 and "colleague set:" in shown.text and "less than 50 %" in shown.text
    again = rule_form(shown, "sla_low")
    assert again["threshold"] == "0.7"  # what was typed is kept
    assert (await browser.post("/alerts/rules/sla_low", data=again)).status_code == 303
    # And a rule that was reset since is not written again by an old form.
    old = again | {"threshold": "0.8"}
    await rules.delete_rule(cluster.database, "sla_low", tenant=TENANT, by="colleague")
    assert (await browser.post("/alerts/rules/sla_low", data=old)).status_code == 409


async def test_a_rule_that_does_not_exist_is_not_found(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/alerts")
    assert (await browser.get("/alerts?edit=nothing")).status_code == 404
    assert (await browser.post("/alerts/rules/nothing", data={"csrf": page.csrf})).status_code == 404
    assert (await browser.post("/alerts/rules/sla_low", data={"threshold": "1"})).status_code == 403  # no CSRF token
