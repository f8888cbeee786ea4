"""A job whose retries are used up: its dead letter, the alert of the tenant and the notification of the job."""

from __future__ import annotations

import json

import msgspec
import pytest

from mainspring import wire
from mainspring.alerts.sign import verified
from mainspring.clock import SystemClock
from mainspring.domain.channel import WebhookTarget
from mainspring.domain.job import Notify
from tests.conftest import started
from tests.support.api_jobs import output
from tests.support.http_receiver import Received, receiving, reply
from tests.support.processes import until

pytestmark = pytest.mark.anyio

SCRIPT = 'echo "try $MAINSPRING_ATTEMPT"; echo "cannot reach the bank" >&2; exit $((MAINSPRING_ATTEMPT + 2))'
TRIES = 3


def message(received: Received) -> tuple[str, dict[str, object]]:
    body = json.loads(received.body)
    return body["type"], body["data"]


@pytest.mark.requirement(118)
async def test_the_last_try_leaves_a_complete_dead_letter_and_calls_both_hooks(database_url: str) -> None:
    """Hooks are called once the last try has failed, and not before; the entry has what an operator needs."""
    async with (
        receiving(lambda _: reply()) as owner,
        receiving(lambda _: reply()) as operations,
        started(database_url, allow_net=("127.0.0.0/8",)) as cluster,
        cluster.client() as client,
    ):
        hook = await client.add_channel(wire.NewChannel(name="owner", target=WebhookTarget(owner.url("/owner"))))
        await client.add_channel(
            wire.NewChannel(name="ops", target=WebhookTarget(operations.url()), events=["execution.failed"])
        )
        spec = {
            "name": "payout",
            "task": {"kind": "shell", "argv": ["sh", "-c", SCRIPT]},
            "retries": {"max": TRIES - 1, "base": "100ms", "jitter": "none"},
            "notify": [Notify(("failed",), ("owner",))],
            "params": {"day": {"type": "string"}},
        }
        job = await client.create_job(spec)
        async with cluster.worker():
            made = await client.trigger("payout", wire.RunNow(params={"day": "monday"}))
            done = await client.wait(made.execution_id, timeout_s=60)
            await until("both hooks", lambda: bool(owner.got and operations.got), within_s=60)
        await client.patch_job("payout", {"task": {"argv": ["true"]}})
        letter = await client.dead_letter(done.execution_id)
        versions = {found.version: found for found in (await client.versions("payout")).items}
        text = await output(client, done)
    assert (done.state, letter.dead_letter_id, letter.job, letter.params) == (
        "failed",
        made.execution_id,
        "payout",
        {"day": "monday"},
    )
    assert [(a.attempt, a.outcome, a.exit_code) for a in letter.attempts] == [
        (1, "failed", 3),
        (2, "failed", 4),
        (3, "failed", 5),
    ]
    assert all(a.started_at <= a.ended_at and a.worker == "test" for a in letter.attempts)
    assert (letter.ended_as, letter.exit_code) == ("failed", 5) and "exit" in str(letter.error)
    assert text == "".join(f"try {n}\n" for n in (1, 2, 3))
    assert letter.version == job.version and len(versions) == 2
    assert "cannot reach the bank" in json.dumps(msgspec.to_builtins(versions[letter.version].spec)), (
        "not the edited one"
    )
    assert [message(got)[0] for got in owner.got] == ["job.failed"], "once, though it was tried three times"
    assert [message(got)[0] for got in operations.got] == ["execution.failed"]
    for got in (*owner.got, *operations.got):
        assert message(got)[1]["execution_id"] == str(made.execution_id)
    assert hook.secret is not None
    assert verified(hook.secret, owner.got[0].headers, owner.got[0].body, now_s=SystemClock().now_ms() / 1000)
