"""The outbox against real receivers: signed, in order, again after a failure or a crash."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.alerts import channels, deliver, sign
from mainspring.alerts.format import Notification
from mainspring.alerts.send import Sender
from mainspring.alerts.targets import opened
from mainspring.clock import instant
from mainspring.domain.channel import AppriseTarget, SlackTarget, SmtpTarget, WebhookTarget, new_secret
from mainspring.domain.job import Notify
from mainspring.domain.retry import RetryPolicy
from mainspring.store import outbox
from mainspring.testing.clock import VirtualClock
from tests.support.alerts import LOOPBACK, TENANT, AlertBench, body_of
from tests.support.certificates import make_certificate
from tests.support.http_receiver import Received, receiving, reply
from tests.support.mail_sink import postbox
from tests.support.settling import SettlingBench
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

NEVER = RetryPolicy(max=0)


def fine(_: Received) -> bytes:
    return reply(body=b"thank you")


async def test_a_webhook_is_signed_and_says_what_ended(bench: AlertBench) -> None:
    async with receiving(fine) as server:
        secret = await bench.webhook(server, "execution.failed")
        job = await bench.job(retries=NEVER)
        execution = await bench.ended("failed", job, exit_code=3, error="exit code 3")
        await bench.ended("succeeded", job)  # nobody asked for that
        assert await bench.deliver() == 1
    (got,) = server.got
    assert sign.verified(secret, got.headers, got.body, now_s=time.time())
    assert not sign.verified(secret, got.headers, got.body + b" ", now_s=time.time())
    assert not sign.verified(new_secret(), got.headers, got.body, now_s=time.time())
    assert not sign.verified(secret, got.headers, got.body, now_s=time.time() + 301)
    told = body_of(got)
    assert told["type"] == "execution.failed"
    assert (told["data"]["execution_id"], told["data"]["exit_code"]) == (str(execution), 3)
    (sent,) = await bench.deliveries()
    assert (sent.state, sent.status, sent.excerpt, sent.tries) == ("sent", 200, "thank you", 1)
    assert str(sent.event_id) == got.headers["webhook-id"]


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    headers = sign.signed(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        event_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at_s=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_nothing_is_written_while_nobody_asks(bench: AlertBench) -> None:
    async with receiving(fine) as server:
        await bench.webhook(server, "alert.firing")
        await bench.ended("succeeded")
        await bench.ended("failed")
    assert await bench.deliveries() == []


async def test_the_first_failure_is_reported_although_the_process_has_not_read_who_wants_it(bench: AlertBench) -> None:
    async with receiving(fine) as server:
        await bench.subscriptions.read()
        target = WebhookTarget(server.url("/hook"), new_secret())
        events = ["execution.failed", "execution.retrying"]
        request = wire.NewChannel(name="hook", target=target, events=events)
        await channels.create(bench.database, bench.vault, request, tenant=TENANT, by="test")
        job = await SettlingBench.job(bench, retries=RetryPolicy(max=1), notify=(Notify(("failed",), ("hook",)),))
        await bench.ended("failed", job)
        await bench.ended(
            "failed", await SettlingBench.job(bench, retries=NEVER, notify=(Notify(("failed",), ("hook",)),))
        )
        while await bench.deliver():
            pass
    assert sorted(body_of(r)["type"] for r in server.got) == ["execution.failed", "execution.retrying", "job.failed"]


async def test_slack_and_pagerduty_get_their_shapes(bench: AlertBench) -> None:
    async with receiving(fine) as server:
        await bench.slack(server, "execution.failed")
        await bench.pagerduty(server, "execution.failed", "execution.succeeded", "execution.cancelled")
        job = await bench.job(retries=NEVER)
        await bench.ended("failed", job, error="a <b> & c")
        await bench.ended("succeeded", job)
        await bench.ended("cancelled", job)
        await bench.deliver()
    by_path: dict[str, list[Received]] = {}
    for got in server.got:
        by_path.setdefault(got.line.split()[1], []).append(got)
    (slack,) = map(body_of, by_path["/services/T0/B0/x"])
    assert slack["text"].startswith("✖ job-") and slack["text"].endswith("failed: a &lt;b&gt; &amp; c")
    assert slack["blocks"][0]["text"]["type"] == "mrkdwn"
    opened, closed = map(body_of, by_path["/v2/enqueue"])
    assert (opened["routing_key"], opened["event_action"]) == ("r0ut1ng", "trigger")
    assert (opened["payload"]["severity"], opened["payload"]["source"]) == ("error", "mainspring")
    assert "a <b> & c" in opened["payload"]["summary"]
    assert (closed["event_action"], closed["dedup_key"]) == ("resolve", opened["dedup_key"])
    assert {d.state for d in await bench.deliveries()} == {"sent"}, "what PagerDuty has no word for is done, too"


async def test_a_failing_channel_is_retried_with_backoff_and_shown(bench: AlertBench, virtual: VirtualClock) -> None:
    answers = [reply("500 Oops", b"no"), reply("503 Busy"), reply(body=b"at last")]
    async with receiving(lambda _: answers.pop(0)) as server:
        await bench.webhook(server, "execution.failed")
        await bench.ended("failed")
        assert await bench.deliver() == 1
        (waits,) = await bench.deliveries()
        assert (waits.state, waits.status, waits.excerpt) == ("pending", 500, "no")
        assert waits.error == "the receiver answered 500"
        assert waits.next_at is not None and (waits.next_at - virtual.now).total_seconds() == 5
        shown = await channels.get(bench.database, "hook", tenant=TENANT)
        assert (shown.state, shown.last_error, shown.pending) == ("failing", "the receiver answered 500", 1)
        assert await bench.deliver() == 0, "not before its time"
        await virtual.advance(seconds=5)
        assert await bench.deliver() == 1
        await virtual.advance(seconds=9)
        assert await bench.deliver() == 0
        await virtual.advance(seconds=1)
        assert await bench.deliver() == 1
    assert len({got.headers["webhook-id"] for got in server.got}) == 1, "the same id at every try"
    (sent,) = await bench.deliveries()
    assert (sent.state, sent.tries, sent.error) == ("sent", 3, None)
    assert (await channels.get(bench.database, "hook", tenant=TENANT)).state == "ok"


async def test_a_channel_that_takes_nothing_for_a_day_is_disabled_and_the_others_hear_it(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    async with receiving(fine) as well, receiving(lambda _: reply("500 Oops")) as broken:
        await bench.slack(well, "channel.disabled")
        await bench.webhook(broken, "execution.failed")
        await bench.ended("failed")
        await bench.deliver()
        await virtual.advance(hours=24, seconds=1)
        await bench.ended("failed")
        await bench.deliver()
        assert "hook was disabled after repeated failures: the receiver answered 500" in body_of(well.got[-1])["text"]
    shown = await channels.get(bench.database, "hook", tenant=TENANT)
    assert shown.state == "disabled" and shown.pending == 0
    assert [d.state for d in await bench.deliveries(channel="hook")] == ["dropped", "dropped"]
    await bench.subscriptions.read()
    await bench.ended("failed")
    assert len(await bench.deliveries(channel="hook")) == 2, "nothing is kept for what is disabled"
    assert (await channels.enable(bench.database, "hook", tenant=TENANT, by="test")).state == "ok"


async def test_order_is_kept_per_job_and_one_that_is_refused_holds_up_only_its_own(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    refused: set[str] = set()
    order: list[tuple[str, str]] = []

    def answer(got: Received) -> bytes:
        data = body_of(got)["data"]
        if data["job"] in refused:
            return reply("400 Bad")
        order.append((data["job"], data["execution_id"]))
        return reply()

    async with receiving(answer) as server:
        await bench.webhook(server, "execution.succeeded")
        first, second = await bench.job(), await bench.job()
        names = {job: (await bench.look(await bench.ended(job=job))).job for job in (first, second)}
        await bench.deliver()
        order.clear()
        refused.add(names[first])
        mine = [await bench.ended(job=first) for _ in range(3)]
        other = [await bench.ended(job=second) for _ in range(3)]
        assert await bench.deliver() == 4, "of the refused ones only the oldest is tried"
        assert order == [(names[second], str(e)) for e in other]
        refused.clear()
        await virtual.advance(minutes=11)
        await bench.deliver()
    assert order[3:] == [(names[first], str(e)) for e in mine]


async def test_who_dies_after_sending_leaves_it_to_be_sent_again_with_the_same_id(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    async with receiving(fine) as server:
        await bench.webhook(server, "execution.failed")
        await bench.ended("failed")
        async with bench.database.connection() as connection:
            (head,) = await outbox.pending_heads(connection, after=outbox.FIRST_STREAM, limit=10)
            (message,) = await outbox.take_messages(connection, message_ids=[head.message_id], lease_s=deliver.LEASE_S)
        notification = Notification(message.event, str(message.event_id), message.created_at, message.body)
        lost = await bench.sender.send(await opened(bench.database, bench.vault, message.stored), notification)
        # Here the process dies: it has sent, and nobody wrote it down.
        assert await bench.deliver() == 0, "while its lease lasts, nobody sends beside it"
        await virtual.advance(seconds=deliver.LEASE_S)
        assert await bench.deliver() == 1
        async with bench.database.connection() as connection:  # it was only asleep, and comes back too late
            await outbox.message_failed(
                connection, message=message, sent=outbox.Sent(500, None, 1, "late"), retry_s=1, give_up_s=1
            )
    assert lost.status == 200
    first, again = server.got
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert first.body == again.body
    (sent,) = await bench.deliveries()
    assert (sent.state, sent.tries) == ("sent", 2)


async def test_a_backlog_is_looked_at_stream_by_stream(
    bench: AlertBench, monkeypatch: pytest.MonkeyPatch, virtual: VirtualClock
) -> None:
    """However much waits behind a message that nobody takes, a look reads one row for each stream."""
    monkeypatch.setattr(deliver, "MAX_STREAMS", 2)
    async with receiving(lambda _: reply("500 Oops")) as server:
        await bench.webhook(server, "execution.succeeded")
        for _ in range(3):
            job = await bench.job()
            for _ in range(4):
                await bench.ended(job=job)
        first = await deliver.deliver(bench.database, bench.vault, bench.sender)
        assert (len(first.messages), first.after != outbox.FIRST_STREAM) == (2, True)
        rest = await deliver.deliver(bench.database, bench.vault, bench.sender, after=first.after)
        assert (len(rest.messages), rest.after) == (1, outbox.FIRST_STREAM)
        quiet = await deliver.deliver(bench.database, bench.vault, bench.sender)
        assert (quiet.messages, quiet.wait_s) == ([], 5.0), "it sleeps until one of them is due"
    assert len(server.got) == 3


async def test_a_receiver_that_hangs_holds_up_no_other_channel(bench: AlertBench) -> None:
    async with receiving(lambda _: b"") as hangs, receiving(fine) as well:
        await bench.webhook(hangs, "execution.succeeded", name="a-hangs")
        await bench.webhook(well, "execution.succeeded", name="b-well")
        deliverer = deliver.Deliverer(bench.database, bench.vault, SilentBus(), bench.sender, leads=lambda: True)
        await bench.ended()
        await deliverer.start()
        await hangs.arrived.wait()
        await well.arrived.wait()
        well.arrived.clear()
        await bench.ended()
        deliverer._wake.set()  # as NOTIFY does
        await well.arrived.wait()
        await deliverer.stop()
    assert (len(hangs.got), len(well.got)) == (1, 2)


async def test_many_streams_of_one_channel_leave_room_for_another(
    bench: AlertBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "BATCH", 2)
    async with receiving(fine) as server:
        for name in ("one", "two"):
            await bench.webhook(server, "execution.succeeded", name=name)
        for _ in range(3):
            await bench.ended()
        seen, place = list[str](), outbox.FIRST_STREAM
        for _ in range(3):
            turn = await deliver.deliver(bench.database, bench.vault, bench.sender, after=place)
            place = turn.after
            seen += [message.channel for message in turn.messages]
    assert sorted(seen) == ["one"] * 3 + ["two"] * 3 and set(seen[2:4]) == {"one", "two"}


async def test_two_who_deliver_at_once_never_send_the_same(bench: AlertBench) -> None:
    import asyncio

    async with receiving(fine) as server:
        await bench.webhook(server, "execution.succeeded")
        for _ in range(8):
            await bench.ended()
        await asyncio.gather(bench.deliver(), bench.deliver(), bench.deliver())
    ids = [got.headers["webhook-id"] for got in server.got]
    assert len(ids) == len(set(ids)) == 8


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1"])
async def test_no_channel_reaches_into_the_network_of_the_server(bench: AlertBench, host: str) -> None:
    notification = Notification("channel.test", "1", instant(0), {"channel": "x"})
    strict = Sender()
    async with receiving(fine) as server:
        for target in (
            WebhookTarget(f"http://{host}:{server.port}/", new_secret()),
            SlackTarget(f"http://{host}:{server.port}/"),
            SmtpTarget(host.strip("[]"), "a@b.c", ("a@b.c",), port=server.port),
        ):
            sent = await strict.send(target, notification)
            assert sent.error is not None and "not allowed" in sent.error and "--allow-net" in sent.error
    await strict.close()
    assert server.got == []


async def test_a_redirect_is_not_followed_and_long_answers_are_cut(bench: AlertBench) -> None:
    notification = Notification("channel.test", "1", instant(0), {"channel": "x"})
    async with receiving(lambda _: reply("302 Found", location="http://127.0.0.1:1/")) as server:
        moved = await bench.sender.send(WebhookTarget(server.url(), new_secret()), notification)
    assert (moved.status, moved.error) == (302, "the receiver answered 302")
    async with receiving(lambda _: reply(body=b"x" * 100_000)) as server:
        long = await bench.sender.send(WebhookTarget(server.url(), new_secret()), notification)
    assert long.error is None and long.excerpt == "x" * 500
    await bench.sender.close()  # also its connection to the server that no longer listens
    nobody = await bench.sender.send(WebhookTarget(server.url(), new_secret()), notification)
    assert nobody.status is None and nobody.error is not None and "ConnectFailed" in nobody.error


async def test_apprise_is_off_until_the_operator_allows_it(bench: AlertBench) -> None:
    notification = Notification("channel.test", "1", instant(0), {"channel": "x"})
    sent = await bench.sender.send(AppriseTarget("json://localhost"), notification)
    assert sent.error is not None and "--apprise" in sent.error
    allowed = await Sender(LOOPBACK, apprise=True).send(AppriseTarget("nonsense"), notification)
    assert allowed.error is not None and "apprise" in allowed.error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def test_mail_is_sent_over_tls_with_a_password(
    bench: AlertBench, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with postbox(context) as box:
        target = SmtpTarget(
            "localhost",
            "ops@example.com",
            ("a@example.com", "b@example.com"),
            port=box.port,
            username="ops",
            password="open sesame",
        )
        await bench.channel("mail", target, ["execution.failed"])
        await bench.ended("failed", error="first line\nsecond line")
        await bench.deliver()
        (waits,) = await bench.deliveries()
        assert waits.state == "pending" and "certificate" in (waits.error or ""), "nobody vouches for this server"
        assert box.logins == [], "so it never saw the password"
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        tested = await channels.test(bench.database, bench.vault, bench.sender, "mail", tenant=TENANT)
        assert (tested.delivered, tested.status) == (True, 250)
    (letter,) = box.letters
    assert (box.secured, box.logins) == (1, ["ops open sesame"])
    assert letter["To"] == "a@example.com, b@example.com" and "test notification for channel mail" in letter["Subject"]


async def test_mail_over_tls_from_the_first_byte_is_for_the_name_in_the_certificate(
    bench: AlertBench, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    notification = Notification("channel.test", "1", instant(0), {"channel": "x"})
    async with postbox(context, at_once=True) as box:
        named = SmtpTarget("localhost", "ops@example.com", ("a@example.com",), port=box.port, tls="tls")
        other = SmtpTarget("127.0.0.1", "ops@example.com", ("a@example.com",), port=box.port, tls="tls")
        sent, refused = await bench.sender.send(named, notification), await bench.sender.send(other, notification)
    assert sent.error is None and len(box.letters) == 1
    assert refused.error is not None and "certificate" in refused.error


async def test_mail_says_what_failed_and_a_full_mailbox_is_tried_again(
    bench: AlertBench, virtual: VirtualClock
) -> None:
    async with postbox() as box:
        box.refuses = True
        target = SmtpTarget("localhost", "ops@example.com", ("a@example.com",), port=box.port, tls="none")
        await bench.channel("mail", target, ["execution.failed"])
        execution = await bench.ended("failed", error="first line\nsecond line")
        await bench.deliver()
        (waits,) = await bench.deliveries()
        assert (waits.status, waits.excerpt) == (451, "the mailbox is full")
        box.refuses = False
        await virtual.advance(seconds=5)
        await bench.deliver()
    (letter,) = box.letters
    assert letter["Subject"].endswith("failed: first line")
    assert f"execution_id: {execution}" in str(letter.get_payload())
    assert letter["Message-ID"] == f"<{waits.event_id}@mainspring>"


async def test_owner_runbook_and_labels_of_the_job_are_in_every_notification(bench: AlertBench) -> None:
    runbook = "https://wiki.example.com/runbooks/nightly"
    async with receiving(fine) as server:
        for make in (bench.webhook, bench.slack, bench.pagerduty):
            await make(server, "execution.failed")
        metadata = {"owner": "finance <data>", "runbook": runbook, "labels": {"team": "finance"}, "other": {"x": 1}}
        await bench.ended("failed", await bench.job(retries=NEVER, metadata=metadata))
        await bench.ended(
            "failed", await bench.job(retries=NEVER, metadata={"runbook": "javascript:alert(1)", "owner": 5})
        )
        await bench.deliver()
    got = {path: [body_of(r) for r in server.got if r.line.split()[1] == path] for path in PATHS}
    told = [message["data"] for message in got["/hook"]]
    assert (told[0]["owner"], told[0]["runbook"], told[0]["labels"]) == ("finance <data>", runbook, {"team": "finance"})
    assert not {"owner", "runbook", "labels", "other"} & told[1].keys()
    assert got["/services/T0/B0/x"][0]["text"].splitlines()[1:] == [
        "owner: finance &lt;data&gt;",
        f"runbook: {runbook}",
    ]
    assert got["/v2/enqueue"][0]["links"] == [{"href": runbook, "text": "Runbook"}]
    assert "links" not in got["/v2/enqueue"][1]


PATHS = ("/hook", "/services/T0/B0/x", "/v2/enqueue")
