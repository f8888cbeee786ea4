"""The outbox against real receivers: signed, in order, again after a failure or a crash."""

from __future__ import annotations

import ssl
import subprocess
import time
from pathlib import Path

import pytest

from mainspring.alerts import channels, deliver, sign
from mainspring.alerts.format import Note
from mainspring.alerts.send import Sender
from mainspring.clock import instant
from mainspring.domain.channel import AppriseTarget, SlackTarget, SmtpTarget, WebhookTarget
from mainspring.domain.retry import RetryPolicy
from mainspring.store import outbox
from tests.support.alerts import LOOPBACK, TENANT, Telling, body_of
from tests.support.clocks import VirtualClock
from tests.support.http_receiver import Received, receiving, reply
from tests.support.mail_sink import postbox
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

NEVER = RetryPolicy(max=0)


def fine(_: Received) -> bytes:
    return reply(body=b"thank you")


async def test_a_webhook_is_signed_and_says_what_ended(telling: Telling) -> None:
    async with receiving(fine) as server:
        secret = await telling.webhook(server, "execution.failed")
        job = await telling.job(retries=NEVER)
        execution = await telling.ended("failed", job, exit_code=3, error="exit code 3")
        await telling.ended("succeeded", job)  # nobody asked for that
        assert await telling.deliver() == 1
    (got,) = server.got
    assert sign.verified(secret, got.headers, got.body, now_s=time.time())
    assert not sign.verified(secret, got.headers, got.body + b" ", now_s=time.time())
    assert not sign.verified(sign.new_secret(), got.headers, got.body, now_s=time.time())
    assert not sign.verified(secret, got.headers, got.body, now_s=time.time() + 301)
    told = body_of(got)
    assert told["type"] == "execution.failed"
    assert (told["data"]["execution_id"], told["data"]["exit_code"]) == (str(execution), 3)
    (sent,) = await telling.deliveries()
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


async def test_nothing_is_written_while_nobody_asks(telling: Telling) -> None:
    async with receiving(fine) as server:
        await telling.webhook(server, "alert.firing")
        await telling.ended("succeeded")
        await telling.ended("failed")
    assert await telling.deliveries() == []


async def test_slack_and_pagerduty_get_their_shapes(telling: Telling) -> None:
    async with receiving(fine) as server:
        await telling.slack(server, "execution.failed")
        await telling.pagerduty(server, "execution.failed", "execution.succeeded", "execution.cancelled")
        job = await telling.job(retries=NEVER)
        await telling.ended("failed", job, error="a <b> & c")
        await telling.ended("succeeded", job)
        await telling.ended("cancelled", job)
        await telling.deliver()
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
    assert {d.state for d in await telling.deliveries()} == {"sent"}, "what PagerDuty has no word for is done, too"


async def test_a_failing_channel_is_retried_with_backoff_and_shown(telling: Telling, virtual: VirtualClock) -> None:
    answers = [reply("500 Oops", b"no"), reply("503 Busy"), reply(body=b"at last")]
    async with receiving(lambda _: answers.pop(0)) as server:
        await telling.webhook(server, "execution.failed")
        await telling.ended("failed")
        assert await telling.deliver() == 1
        (waits,) = await telling.deliveries()
        assert (waits.state, waits.status, waits.excerpt, waits.error) == ("pending", 500, "no", "it answered 500")
        assert waits.next_at is not None and (waits.next_at - virtual.now).total_seconds() == 5
        shown = await channels.get(telling.database, "hook", tenant=TENANT)
        assert (shown.state, shown.last_error, shown.pending) == ("failing", "it answered 500", 1)
        assert await telling.deliver() == 0, "not before its time"
        await virtual.advance(seconds=5)
        assert await telling.deliver() == 1
        await virtual.advance(seconds=9)
        assert await telling.deliver() == 0
        await virtual.advance(seconds=1)
        assert await telling.deliver() == 1
    assert len({got.headers["webhook-id"] for got in server.got}) == 1, "the same id at every try"
    (sent,) = await telling.deliveries()
    assert (sent.state, sent.tries, sent.error) == ("sent", 3, None)
    assert (await channels.get(telling.database, "hook", tenant=TENANT)).state == "ok"


async def test_a_channel_that_takes_nothing_for_a_day_is_disabled_and_the_others_hear_it(
    telling: Telling, virtual: VirtualClock
) -> None:
    async with receiving(fine) as well, receiving(lambda _: reply("500 Oops")) as broken:
        await telling.slack(well, "channel.disabled")
        await telling.webhook(broken, "execution.failed")
        await telling.ended("failed")
        await telling.deliver()
        await virtual.advance(hours=24, seconds=1)
        await telling.ended("failed")
        await telling.deliver()
        assert "hook was disabled: it answered 500" in body_of(well.got[-1])["text"]
    shown = await channels.get(telling.database, "hook", tenant=TENANT)
    assert shown.state == "disabled" and shown.pending == 0
    assert [d.state for d in await telling.deliveries(channel="hook")] == ["dropped", "dropped"]
    await telling.subscriptions.read()
    await telling.ended("failed")
    assert len(await telling.deliveries(channel="hook")) == 2, "nothing is kept for what is disabled"
    assert (await channels.enable(telling.database, "hook", tenant=TENANT, by="test")).state == "ok"


async def test_order_is_kept_per_job_and_one_that_is_refused_holds_up_only_its_own(
    telling: Telling, virtual: VirtualClock
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
        await telling.webhook(server, "execution.succeeded")
        first, second = await telling.job(), await telling.job()
        names = {job: (await telling.look(await telling.ended(job=job))).job for job in (first, second)}
        await telling.deliver()
        order.clear()
        refused.add(names[first])
        mine = [await telling.ended(job=first) for _ in range(3)]
        other = [await telling.ended(job=second) for _ in range(3)]
        assert await telling.deliver() == 4, "of the refused ones only the oldest is tried"
        assert order == [(names[second], str(e)) for e in other]
        refused.clear()
        await virtual.advance(minutes=11)
        await telling.deliver()
    assert order[3:] == [(names[first], str(e)) for e in mine]


async def test_who_dies_after_sending_leaves_it_to_be_sent_again_with_the_same_id(
    telling: Telling, virtual: VirtualClock
) -> None:
    async with receiving(fine) as server:
        await telling.webhook(server, "execution.failed")
        await telling.ended("failed")
        async with telling.database.connection() as connection:
            (head,) = await outbox.pending_heads(connection, after=outbox.START, limit=10)
            (message,) = await outbox.take_messages(connection, message_ids=[head.message_id], lease_s=deliver.LEASE_S)
        note = Note(message.event, str(message.event_id), message.created_at, message.body)
        lost = await telling.sender.send(message.target, note)
        # Here the process dies: it has sent, and nobody wrote it down.
        assert await telling.deliver() == 0, "while its lease lasts, nobody sends beside it"
        await virtual.advance(seconds=deliver.LEASE_S)
        assert await telling.deliver() == 1
        async with telling.database.connection() as connection:  # it was only asleep, and comes back too late
            await outbox.message_failed(
                connection, message=message, sent=outbox.Sent(500, None, 1, "late"), again_s=1, give_up_s=1
            )
    assert lost.status == 200
    first, again = server.got
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert first.body == again.body
    (sent,) = await telling.deliveries()
    assert (sent.state, sent.tries) == ("sent", 2)


async def test_a_backlog_is_looked_at_stream_by_stream(
    telling: Telling, monkeypatch: pytest.MonkeyPatch, virtual: VirtualClock
) -> None:
    """However much waits behind a message that nobody takes, a look reads one row for each stream."""
    monkeypatch.setattr(deliver, "HEADS", 2)
    async with receiving(lambda _: reply("500 Oops")) as server:
        await telling.webhook(server, "execution.succeeded")
        for _ in range(3):
            job = await telling.job()
            for _ in range(4):
                await telling.ended(job=job)
        first = await deliver.deliver(telling.database, telling.sender)
        assert (len(first.messages), first.after != outbox.START) == (2, True)
        rest = await deliver.deliver(telling.database, telling.sender, after=first.after)
        assert (len(rest.messages), rest.after) == (1, outbox.START)
        quiet = await deliver.deliver(telling.database, telling.sender)
        assert (quiet.messages, quiet.wait_s) == ([], 5.0), "it sleeps until one of them is due"
    assert len(server.got) == 3


async def test_a_receiver_that_hangs_holds_up_no_other_channel(telling: Telling) -> None:
    async with receiving(lambda _: b"") as hangs, receiving(fine) as well:
        await telling.webhook(hangs, "execution.succeeded", name="a-hangs")
        await telling.webhook(well, "execution.succeeded", name="b-well")
        deliverer = deliver.Deliverer(telling.database, SilentBus(), telling.sender, leads=lambda: True)
        await telling.ended()
        await deliverer.start()
        await hangs.arrived.wait()
        await well.arrived.wait()
        well.arrived.clear()
        await telling.ended()
        deliverer._called.set()  # as NOTIFY does
        await well.arrived.wait()
        await deliverer.stop()
    assert (len(hangs.got), len(well.got)) == (1, 2)


async def test_many_streams_of_one_channel_leave_room_for_another(
    telling: Telling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "BATCH", 2)
    async with receiving(fine) as server:
        for name in ("one", "two"):
            await telling.webhook(server, "execution.succeeded", name=name)
        for _ in range(3):
            await telling.ended()
        seen, place = list[str](), outbox.START
        for _ in range(3):
            turn = await deliver.deliver(telling.database, telling.sender, after=place)
            place = turn.after
            seen += [message.channel for message in turn.messages]
    assert sorted(seen) == ["one"] * 3 + ["two"] * 3 and set(seen[2:4]) == {"one", "two"}


async def test_two_who_deliver_at_once_never_send_the_same(telling: Telling) -> None:
    import asyncio

    async with receiving(fine) as server:
        await telling.webhook(server, "execution.succeeded")
        for _ in range(8):
            await telling.ended()
        await asyncio.gather(telling.deliver(), telling.deliver(), telling.deliver())
    ids = [got.headers["webhook-id"] for got in server.got]
    assert len(ids) == len(set(ids)) == 8


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1"])
async def test_no_channel_reaches_into_the_network_of_the_server(telling: Telling, host: str) -> None:
    note = Note("channel.test", "1", instant(0), {"channel": "x"})
    strict = Sender()
    async with receiving(fine) as server:
        for target in (
            WebhookTarget(f"http://{host}:{server.port}/", sign.new_secret()),
            SlackTarget(f"http://{host}:{server.port}/"),
            SmtpTarget(host.strip("[]"), "a@b.c", ("a@b.c",), port=server.port),
        ):
            sent = await strict.send(target, note)
            assert sent.error is not None and "not allowed" in sent.error and "--allow-net" in sent.error
    await strict.close()
    assert server.got == []


async def test_a_redirect_is_not_followed_and_long_answers_are_cut(telling: Telling) -> None:
    note = Note("channel.test", "1", instant(0), {"channel": "x"})
    async with receiving(lambda _: reply("302 Found", location="http://127.0.0.1:1/")) as server:
        moved = await telling.sender.send(WebhookTarget(server.url(), sign.new_secret()), note)
    assert (moved.status, moved.error) == (302, "it answered 302")
    async with receiving(lambda _: reply(body=b"x" * 100_000)) as server:
        long = await telling.sender.send(WebhookTarget(server.url(), sign.new_secret()), note)
    assert long.error is None and long.excerpt == "x" * 500
    nobody = await telling.sender.send(WebhookTarget(server.url(), sign.new_secret()), note)
    assert nobody.status is None and nobody.error is not None and "ConnectError" in nobody.error


async def test_apprise_is_off_until_the_operator_allows_it(telling: Telling) -> None:
    note = Note("channel.test", "1", instant(0), {"channel": "x"})
    sent = await telling.sender.send(AppriseTarget("json://localhost"), note)
    assert sent.error is not None and "--apprise" in sent.error
    allowed = await Sender(LOOPBACK, apprise=True).send(AppriseTarget("nonsense"), note)
    assert allowed.error is not None and "apprise" in allowed.error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            key,
            "-out",
            cert,
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )
    return key, cert


async def test_mail_is_sent_over_tls_with_a_password(
    telling: Telling, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
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
        await telling.channel("mail", target, ["execution.failed"])
        await telling.ended("failed", error="first line\nsecond line")
        await telling.deliver()
        (waits,) = await telling.deliveries()
        assert waits.state == "pending" and "certificate" in (waits.error or ""), "nobody vouches for this server"
        assert box.logins == [], "so it never saw the password"
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        tested = await channels.test(telling.database, telling.sender, "mail", tenant=TENANT)
        assert (tested.delivered, tested.status) == (True, 250)
    (letter,) = box.letters
    assert (box.secured, box.logins) == (1, ["ops open sesame"])
    assert letter["To"] == "a@example.com, b@example.com" and "a test of channel mail" in letter["Subject"]


async def test_mail_over_tls_from_the_first_byte_is_for_the_name_in_the_certificate(
    telling: Telling, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    note = Note("channel.test", "1", instant(0), {"channel": "x"})
    async with postbox(context, at_once=True) as box:
        named = SmtpTarget("localhost", "ops@example.com", ("a@example.com",), port=box.port, tls="tls")
        other = SmtpTarget("127.0.0.1", "ops@example.com", ("a@example.com",), port=box.port, tls="tls")
        sent, refused = await telling.sender.send(named, note), await telling.sender.send(other, note)
    assert sent.error is None and len(box.letters) == 1
    assert refused.error is not None and "certificate" in refused.error


async def test_mail_says_what_failed_and_a_full_mailbox_is_tried_again(telling: Telling, virtual: VirtualClock) -> None:
    async with postbox() as box:
        box.refuses = True
        target = SmtpTarget("localhost", "ops@example.com", ("a@example.com",), port=box.port, tls="none")
        await telling.channel("mail", target, ["execution.failed"])
        execution = await telling.ended("failed", error="first line\nsecond line")
        await telling.deliver()
        (waits,) = await telling.deliveries()
        assert (waits.status, waits.excerpt) == (451, "the mailbox is full")
        box.refuses = False
        await virtual.advance(seconds=5)
        await telling.deliver()
    (letter,) = box.letters
    assert letter["Subject"].endswith("failed: first line second line")
    assert f"execution_id: {execution}" in str(letter.get_payload())
    assert letter["Message-ID"] == f"<{waits.event_id}@mainspring>"
