"""Signed webhooks over HTTP: what starts an execution, what does not, and what the sender is answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.params import Param
from mainspring.domain.trigger import TriggerSpec, WebhookSource
from mainspring.intake.triggers import definitions
from mainspring.intake.triggers.hooks import MAX_HOOK_BODY
from mainspring.telemetry import metrics
from tests.conftest import Cluster
from tests.support.webhook_sender import SIGN, Sender, generic, github, hex_of, standard, stripe

pytestmark = pytest.mark.anyio
SECRET = "a-secret-of-the-sender"
PUSH = {"ref": "refs/heads/main", "commits": [{"id": 1}, {"id": 2}], "pusher": {"name": "ada"}}


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False, timeout=10) as client:
        yield client


async def new_job(cluster: Cluster, **more: Any) -> str:
    name = f"job-{uuid4().hex[:8]}"
    async with cluster.client() as client:
        await client.create_job(JobSpec(name=name, task=NoopTask(), **more))
    return name


async def new_hook(
    cluster: Cluster, http: httpx2.AsyncClient, *, secret: str | None = SECRET, job: str | None = None, **more: Any
) -> tuple[wire.Trigger, Sender]:
    source = more.pop("source", None) or WebhookSource(scheme="github")
    async with cluster.client() as client:
        made = await client.add_trigger(
            wire.NewTrigger(
                name=f"t-{uuid4().hex[:8]}",
                source=source,
                job=job or await new_job(cluster),
                secret=secret,
                **more,
            )
        )
    assert made.path is not None
    return made, Sender(http, made.path)


async def executions_of(cluster: Cluster, job: str) -> list[wire.Execution]:
    async with cluster.client() as client:
        return (await client.executions(job=job)).items


async def test_a_signed_delivery_starts_an_execution_with_mapped_params(
    cluster: Cluster, http: httpx2.AsyncClient
) -> None:
    job = await new_job(cluster, params={"ref": Param(type="string"), "n": Param(type="integer"), "who": Param()})
    made, sender = await new_hook(
        cluster,
        http,
        job=job,
        params={"ref": "{{body.ref}}", "who": "{{body.pusher.name}} ({{headers.x-github-event}})"},
        expressions={"n": "size(body.commits)"},
    )
    body = json.dumps(PUSH).encode()
    answer = await sender.post(body, github(SECRET, body, delivery="72d3162e"))
    assert answer.status_code == 200
    found = answer.json()
    assert (found["outcome"], found["trigger"], found["duplicate"]) == ("started", made.name, False)
    (execution,) = await executions_of(cluster, job)
    assert str(execution.execution_id) == found["execution_id"]
    assert execution.params == {"ref": "refs/heads/main", "n": 2, "who": "ada (push)"}
    assert execution.created_by == f"trigger {made.name}, delivery id:72d3162e"
    async with cluster.client() as client:
        shown = await client.get_trigger(made.name)
        assert shown.last_delivery is not None and shown.last_delivery.execution_id == execution.execution_id
        assert shown.secret is None and SECRET not in str(shown)


@pytest.mark.parametrize("scheme", list(SIGN))
async def test_every_scheme_with_a_signature_made_elsewhere(
    cluster: Cluster, http: httpx2.AsyncClient, scheme: Any
) -> None:
    made, sender = await new_hook(cluster, http, secret=None, source=WebhookSource(scheme=scheme))
    assert made.secret is not None
    body = json.dumps({"id": "evt_1", "type": "paid"}).encode()
    first = await sender.post(body, SIGN[scheme](made.secret, body))
    assert (first.status_code, first.json()["outcome"]) == (200, "started")
    again = await sender.post(body, SIGN[scheme](made.secret, body))
    assert again.json() == {**first.json(), "duplicate": True}
    assert len(await executions_of(cluster, made.job)) == 1
    forged = await sender.post(body, SIGN[scheme]("whsec_" + "A" * 44, body))
    assert (forged.status_code, forged.json()["code"]) == (401, "bad_signature")


BODY = b'{"id": "evt_1"}'


def forged(now: int) -> dict[str, tuple[str, dict[str, str]]]:
    """Schemes and headers by what is wrong with them. Old ones are refused for their age alone."""
    return {
        "nothing": ("github", {}),
        "another body": ("github", github(SECRET, BODY + b" ")),
        "another secret": ("github", github(SECRET + "x", BODY)),
        "no prefix": ("github", {"X-Hub-Signature-256": hex_of(SECRET, BODY)}),
        "sha1": ("github", {"X-Hub-Signature-256": "sha1=" + hex_of(SECRET, BODY)}),
        "too short": ("github", {"X-Hub-Signature-256": "sha256=" + hex_of(SECRET, BODY)[:-1]}),
        "too long": ("github", {"X-Hub-Signature-256": "sha256=" + hex_of(SECRET, BODY) + "0"}),
        "not hexadecimal": ("github", {"X-Hub-Signature-256": "sha256=" + "g" * 64}),
        "not ascii": ("github", {"X-Hub-Signature-256": "sha256=" + "é" * 64}),
        "empty digest": ("github", {"X-Hub-Signature-256": "sha256="}),
        "stripe without t": ("stripe", {"Stripe-Signature": f"v1={hex_of(SECRET, f'{now}.'.encode() + BODY)}"}),
        "stripe without v1": ("stripe", {"Stripe-Signature": f"t={now}"}),
        "stripe of v0 only": (
            "stripe",
            {"Stripe-Signature": f"t={now},v0={hex_of(SECRET, f'{now}.'.encode() + BODY)}"},
        ),
        "stripe from before": ("stripe", stripe(SECRET, BODY, at=now - 1000)),
        "stripe from later": ("stripe", stripe(SECRET, BODY, at=now + 1000)),
        "stripe with another time": (
            "stripe",
            {
                "Stripe-Signature": stripe(SECRET, BODY, at=now - 1000)["Stripe-Signature"].replace(
                    f"{now - 1000}", f"{now}"
                )
            },
        ),
        "stripe with two times": (
            "stripe",
            {"Stripe-Signature": f"t={now},{stripe(SECRET, BODY, at=now - 1000)['Stripe-Signature']}"},
        ),
        "stripe with a long number": ("stripe", {"Stripe-Signature": f"t={'9' * 40},v1={'0' * 64}"}),
        "stripe with another digit": (
            "stripe",
            {"Stripe-Signature": f"t=１２３,v1={'0' * 64}".encode().decode("latin-1")},
        ),
        "generic without a timestamp": ("generic", {"X-Signature-256": hex_of(SECRET, BODY)}),
        "generic, old": ("generic", generic(SECRET, BODY, at=now - 1000)),
        "generic with another timestamp": ("generic", {**generic(SECRET, BODY, at=now - 30), "X-Timestamp": str(now)}),
        "generic with the signature of github": ("generic", {"X-Timestamp": str(now), **github(SECRET, BODY)}),
        "standard, old": ("standard", standard("whsec_" + "A" * 44, BODY, at=now - 1000)),
        "standard with another id": ("standard", {**standard("whsec_" + "A" * 44, BODY), "webhook-id": "msg_2"}),
        "standard, not base64": ("standard", {**standard("whsec_" + "A" * 44, BODY), "webhook-signature": "v1,???"}),
        "standard, other version": (
            "standard",
            {**standard("whsec_" + "A" * 44, BODY), "webhook-signature": "v2,AAAA"},
        ),
    }


@pytest.mark.parametrize("case", list(forged(0)))
async def test_forged_and_malformed_signatures_start_nothing(
    cluster: Cluster, http: httpx2.AsyncClient, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.context.rates, "admit_unauthenticated", lambda *_, **__: None)
    scheme, headers = forged(int(time.time()))[case]
    secret = "whsec_" + "A" * 44 if scheme == "standard" else SECRET
    made, sender = await new_hook(cluster, http, source=WebhookSource(scheme=scheme), secret=secret)  # type: ignore[arg-type]
    count = metrics.TRIGGER_DELIVERIES.labels("webhook", "rejected")
    before = count._value.get()
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = await http.post(sender.path, content=BODY, headers=raw)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")
    assert count._value.get() == before + 1
    assert secret not in answer.text and hex_of(secret, BODY) not in answer.text
    assert not await executions_of(cluster, made.job)
    async with cluster.client() as client:
        shown = await client.get_trigger(made.name)
        assert shown.last_rejection and shown.last_rejection in answer.json()["detail"]
        assert not (await client.trigger_deliveries(made.name)).items, "strangers write no rows"


async def test_the_generic_scheme_with_names_of_the_sender(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    source = WebhookSource(
        signature_header="X-Shop-Sign",
        timestamp_header="X-Shop-Time",
        id_header="X-Shop-Id",
        event_header="X-Shop-Event",
        events=["order.paid"],
    )
    made, sender = await new_hook(cluster, http, source=source)
    names, now = ("X-Shop-Time", "X-Shop-Sign"), int(time.time())
    for n, (event, outcome) in enumerate((("order.paid", "started"), ("order.sent", "filtered"), ("", "filtered"))):
        headers = {**generic(SECRET, b"", names=names), "X-Shop-Id": str(n), "X-Shop-Event": event}
        answer = await sender.post(b"", headers)
        assert (answer.status_code, answer.json()["outcome"]) == (200, outcome)
    moved = {**generic(SECRET, b"", at=now - 7, names=names), "X-Shop-Id": "0", "X-Shop-Event": "order.paid"}
    assert (await sender.post(b"", moved)).json()["duplicate"]
    assert len(await executions_of(cluster, made.job)) == 1


async def test_without_an_id_the_same_request_is_the_same_delivery(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    made, sender = await new_hook(cluster, http, source=WebhookSource())
    body, now = b"{}", int(time.time())
    for at, expected in ((now - 3, 1), (now - 3, 1), (now - 2, 2)):
        assert (await sender.post(body, generic(SECRET, body, at=at))).status_code == 200
        assert len(await executions_of(cluster, made.job)) == expected
    made, sender = await new_hook(cluster, http, source=WebhookSource(dedupe="body"))
    for at in (now - 3, now - 2):
        assert (await sender.post(body, generic(SECRET, body, at=at))).status_code == 200
    assert len(await executions_of(cluster, made.job)) == 1


async def test_twenty_equal_deliveries_at_once_start_one_execution(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    made, sender = await new_hook(cluster, http, params={"ref": "{{body.ref}}"})
    body = json.dumps(PUSH).encode()
    answers = await asyncio.gather(*(sender.post(body, github(SECRET, body)) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["execution_id"] for answer in answers}) == 1
    assert sorted(answer.json()["duplicate"] for answer in answers) == [False] + [True] * 19
    assert len(await executions_of(cluster, made.job)) == 1
    async with cluster.client() as client:
        (delivery,) = (await client.trigger_deliveries(made.name)).items
    assert (delivery.outcome, delivery.repeats) == ("started", 19)


@pytest.mark.parametrize(
    ("more", "status", "outcome", "reason"),
    [
        ({"source": WebhookSource(scheme="github", events=["release"])}, 200, "filtered", "'push' is not among"),
        ({"when": 'body.ref == "refs/heads/prod"'}, 200, "filtered", "the condition is false"),
        ({"when": "body.nothing.here == 1"}, 200, "filtered", "the condition has no value"),
        ({"when": "size(body.ref)"}, 200, "filtered", "not true or false"),
        ({"params": {"a": "{{body.nothing}}"}}, 422, "refused", "the delivery has no body.nothing"),
        ({"expressions": {"a": "body.nothing"}}, 422, "refused", "an expression has no value"),
        (
            {"when": "body.commits.all(c, c.id > 0)", "expressions": {"n": "body.commits.map(c, c.id)"}},
            200,
            "started",
            "",
        ),
    ],
)
async def test_filters_and_mapping(
    cluster: Cluster, http: httpx2.AsyncClient, more: Any, status: int, outcome: str, reason: str
) -> None:
    made, sender = await new_hook(cluster, http, **more)
    body = json.dumps(PUSH).encode()
    answer = await sender.post(body, github(SECRET, body))
    found = answer.json()
    assert (answer.status_code, found["outcome"]) == (status, outcome)
    assert reason in (found["reason"] or "")
    assert len(await executions_of(cluster, made.job)) == (outcome == "started")
    async with cluster.client() as client:
        tested = await client.test_trigger(made.name, wire.TriggerSample(body=PUSH, headers={"X-GitHub-Event": "push"}))
        assert (tested.outcome, tested.reason) == (outcome, found["reason"])
        assert len((await client.trigger_deliveries(made.name)).items) == 1, "a dry run records nothing"


async def test_a_delivery_that_started_nothing_can_be_sent_again(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    job = await new_job(cluster, params={"ref": Param(type="integer")})
    made, sender = await new_hook(cluster, http, job=job, params={"ref": "{{body.ref}}"})
    body = json.dumps(PUSH).encode()
    refused = await sender.post(body, github(SECRET, body))
    assert refused.status_code == 422 and "ref" in refused.json()["reason"]
    async with cluster.client() as client:
        spec = TriggerSpec(source=made.spec.source, job=job, expressions={"ref": "size(body.ref)"})
        await client.put_trigger(made.name, spec)
        assert (await sender.post(body, github(SECRET, body))).json()["outcome"] == "started"
        (delivery,) = (await client.trigger_deliveries(made.name)).items
    assert (delivery.outcome, delivery.repeats, delivery.params) == ("started", 1, {"ref": 15})


async def test_paused_triggers_and_jobs_answer_why(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    made, sender = await new_hook(cluster, http)
    body = b"{}"
    async with cluster.client() as client:
        await client.pause_trigger(made.name, reason="release freeze")
        answer = await sender.post(body, github(SECRET, body))
        assert (answer.status_code, answer.json()["outcome"]) == (409, "paused")
        assert "release freeze" in answer.json()["reason"]
        await client.resume_trigger(made.name)
        await client.pause_job(made.job, reason="broken")
        answer = await sender.post(body, github(SECRET, body))
        assert answer.status_code == 409 and "is paused: broken" in answer.json()["reason"]
        await client.resume_job(made.job)
        assert (await sender.post(body, github(SECRET, body))).json()["outcome"] == "started"
        await client.delete_job(made.job)
        answer = await sender.post(body, github(SECRET, body, delivery="d-2"))
        assert answer.status_code == 422 and "there is no job" in answer.json()["reason"]


async def test_a_rotated_secret_overlaps_with_the_previous_one(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    made, sender = await new_hook(cluster, http)
    body = b"{}"
    async with cluster.client() as client:
        second = (await client.rotate_trigger(made.name)).secret
        assert second is not None and second != SECRET
        for n, secret in enumerate((SECRET, second)):
            assert (await sender.post(body, github(secret, body, delivery=str(n)))).status_code == 200
        third = await client.rotate_trigger(made.name, secret="chosen-by-the-sender", overlap="0s")
        assert (third.secret, third.previous_secret_until) == (None, None), "only generated secrets are shown"
    for secret, status in ((SECRET, 401), (second, 401), ("chosen-by-the-sender", 200)):
        assert (await sender.post(body, github(secret, body, delivery="z"))).status_code == status


async def test_unknown_addresses_and_bad_bodies(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    for ref in (str(uuid4()), "name", "x" * 1000):
        answer = await http.post(f"/hooks/{ref}", content=b"{}", headers=github(SECRET, b"{}"))
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no webhook at this address")
    made, sender = await new_hook(cluster, http)
    for body, status in ((b"{", 400), (b"[" * 100, 400), (b'{"a": "\\u0000"}', 422)):
        assert (await sender.post(body, github(SECRET, body))).status_code == status
    long = json.dumps({"a": "x" * MAX_HOOK_BODY}).encode()
    assert len(long) > MAX_HOOK_BODY
    assert (await sender.post(long, github(SECRET, long))).status_code == 413
    assert (await http.get(sender.path)).status_code in (401, 405)
    assert not await executions_of(cluster, made.job)


async def test_one_hook_cannot_start_more_than_its_rate(
    cluster: Cluster, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainspring.api.rate_limit import RateLimiter

    made, sender = await new_hook(cluster, http)
    monkeypatch.setattr(cluster.context.rates, "_hooks", RateLimiter(0.001, burst=2))
    answers = [await sender.post(b"{}", github(SECRET, b"{}", delivery=str(n))) for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    assert len(await executions_of(cluster, made.job)) == 2


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "a b"}, "/name"),
        ({"when": "steps.x"}, "/when"),
        ({"when": "body.ref =="}, "/when"),
        ({"params": {"a": "{{bodi.ref}}"}}, "/params/a"),
        ({"expressions": {"a": "1 +"}}, "/expressions/a"),
        ({"params": {"a": 1}, "expressions": {"a": "1"}}, "/expressions/a"),
        ({"source": WebhookSource(scheme="github", signature_header="X-A")}, "/source/signature_header"),
        ({"source": WebhookSource(signature_header="X A")}, "/source/signature_header"),
        ({"source": WebhookSource(timestamp_header="x-signature-256")}, "/source/timestamp_header"),
        ({"source": WebhookSource(events=["a"])}, "/source/events"),
        ({"secret": "short"}, "/secret"),
        ({"source": WebhookSource(scheme="standard"), "secret": "not base64, but long enough"}, "/secret"),
        ({"job": "nothing"}, "/job"),
    ],
)
async def test_bad_definitions_say_where(cluster: Cluster, change: dict[str, Any], pointer: str) -> None:
    base: dict[str, Any] = {"name": "bad", "source": WebhookSource(scheme="github"), "job": await new_job(cluster)}
    async with cluster.client() as client:
        with pytest.raises(Invalid) as error:
            await client.add_trigger(wire.NewTrigger(**{**base, **change}))
        assert error.value.problems[0].pointer == pointer and error.value.problems[0].hint
        with pytest.raises(NotFound):
            await client.get_trigger("bad")


async def test_a_tenant_has_a_bounded_number_of_triggers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await new_job(cluster)
    async with cluster.client() as client:
        there = len((await client.triggers(limit=500)).items)
        monkeypatch.setattr(definitions, "MAX_TRIGGERS", there + 1)
        source = WebhookSource(scheme="github")
        await client.add_trigger(wire.NewTrigger(name="last", source=source, job=job))
        with pytest.raises(Conflict) as error:
            await client.add_trigger(wire.NewTrigger(name="more", source=source, job=job))
        assert error.value.code == "too_many_triggers"
        with pytest.raises(Conflict) as error:
            await client.add_trigger(wire.NewTrigger(name="last", source=source, job=job))
        await client.delete_trigger("last")
        with pytest.raises(NotFound):
            await client.delete_trigger("last")


async def test_why_names_the_trigger_and_its_last_delivery(cluster: Cluster, http: httpx2.AsyncClient) -> None:
    made, sender = await new_hook(cluster, http, when="body.go")
    async with cluster.client() as client:
        (reason,) = (await client.why_job(made.job)).reasons
        assert (reason.code, reason.message) == ("trigger", f"it waits for trigger {made.name}; no delivery so far")
        body = b'{"go": false}'
        assert (await sender.post(body, github(SECRET, body))).json()["outcome"] == "filtered"
        (reason,) = (await client.why_job(made.job)).reasons
        assert "UTC filtered: the condition is false: body.go" in reason.message
        body = b'{"go": true}'
        started = (await sender.post(body, github(SECRET, body, delivery="d-2"))).json()
        (created, *_) = (await client.events(started["execution_id"])).items
        assert created.text == f"by trigger {made.name}, delivery id:d-2"


async def test_a_tenant_that_may_start_nothing_gets_its_delivery_again(
    cluster: Cluster, http: httpx2.AsyncClient
) -> None:
    """Quota and suspension are decided in the transaction that would start: no cache of tokens or settings counts."""
    name = f"t-{uuid4().hex[:8]}"
    async with cluster.client() as admin:
        await admin.create_tenant(wire.NewTenant(name=name, max_queued=1))
        token = (await admin.issue_tenant_token(name, wire.NewToken(name="first", role="admin"))).token
    async with AsyncClient(cluster.url, token) as own:
        await own.create_job(JobSpec(name="job", task=NoopTask()))
        made = await own.add_trigger(
            wire.NewTrigger(name="hook", source=WebhookSource(scheme="github"), job="job", secret=SECRET)
        )
        assert made.path is not None
        sender = Sender(http, made.path)
        bodies = [json.dumps({"n": n}).encode() for n in range(6)]
        given = await asyncio.gather(
            *(sender.post(body, github(SECRET, body, delivery=f"d{n}")) for n, body in enumerate(bodies))
        )
        assert sorted(answer.status_code for answer in given) == [200] + [409] * 5
        refused = next(answer.json() for answer in given if answer.status_code == 409)
        assert refused["outcome"] == "paused" and "quota max_queued allows 1" in refused["reason"]
        (waiting,) = (await own.executions(job="job")).items
        await own.cancel(waiting.execution_id)
        async with cluster.database.connection() as connection:  # not over the API: no process is informed
            await connection.execute("UPDATE tenants SET suspended_at = db_now() WHERE name = $1", name)
        late = await sender.post(bodies[0], github(SECRET, bodies[0], delivery="late"))
        assert (late.status_code, late.json()["reason"]) == (409, "the tenant is suspended")
        async with cluster.database.connection() as connection:
            await connection.execute("UPDATE tenants SET suspended_at = NULL WHERE name = $1", name)
        late = await sender.post(bodies[0], github(SECRET, bodies[0], delivery="late"))
        assert (late.status_code, late.json()["outcome"]) == (200, "started")
