"""The mails of the examples, sent by a real worker to a real mail server and a real billing service."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from mainspring import wire
from tests.conftest import Cluster
from tests.support.http_receiver import Received, receiving, reply
from tests.support.mail_sink import postbox

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
UNPAID = [
    {"number": "R-17", "address": "late@example.com", "amount": "12.50"},
    {"number": "R-18", "address": "later@example.com", "amount": "99.00"},
]


def billing(received: Received) -> bytes:
    return reply(body=json.dumps(UNPAID).encode() if received.line.startswith("GET") else b"{}")


@pytest.mark.requirement(58)
async def test_password_reset_marketing_and_payment_reminder(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with postbox() as box, receiving(billing) as bills:
        monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
        monkeypatch.setenv("MAIL_SERVER", f"127.0.0.1:{box.port}")
        monkeypatch.setenv("BILLING_URL", bills.url("").removesuffix("/"))
        async with (
            cluster.client() as client,
            cluster.worker(modules=("mails",), name="mails", pass_env=("MAIL_SERVER", "BILLING_URL")),
        ):

            async def run(job: str, **params: object) -> wire.Execution:
                triggered = await client.trigger(job, wire.RunNow(params=params or None))
                return await client.wait(triggered.execution_id, timeout_s=60)

            reset = await run("password_reset", address="new@example.com", link="https://example.com/r/1")
            assert (reset.state, reset.priority) == ("succeeded", 9)
            (letter,) = box.letters
            assert letter["To"] == "new@example.com" and "https://example.com/r/1" in str(letter.get_payload())

            # The mail server is full when half the campaign is through; what was sent is not sent again.
            addresses = [f"reader-{n}@example.com" for n in range(6)]
            box.full_after = 4
            news = await run("marketing_mail", campaign="spring", addresses=addresses)
            assert (news.state, news.attempt, news.result) == ("succeeded", 2, {"sent": 3})
            assert [letter["To"] for letter in box.letters[1:]] == addresses

            reminder = await client.job("payment_reminder")
            assert reminder.schedule_description is not None and reminder.next_fire_at is not None
            assert reminder.next_fire_at.weekday() < 5
            reminded = await run("payment_reminder")
            assert (reminded.state, reminded.result) == ("succeeded", {"reminded": ["R-17", "R-18"]})
            assert [letter["Subject"] for letter in box.letters[-2:]] == ["Invoice R-17", "Invoice R-18"]
            asked, *told = bills.got
            day = date.fromisoformat(asked.line.split()[1].partition("unpaid_on=")[2])
            keys = [r.headers["idempotency-key"] for r in told if r.line.startswith("POST")]
            assert keys == [f"reminder-R-17-{day}", f"reminder-R-18-{day}"]
