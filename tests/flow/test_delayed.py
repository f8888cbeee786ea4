"""A delayed submission, a one-time job and a retry survive a restart of the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mainspring import wire
from mainspring.domain.errors import Unavailable
from tests.support.processes import dev, until_async


@pytest.mark.fault
@pytest.mark.requirement(72)
async def test_what_is_put_off_appears_when_due_though_the_server_was_killed(tmp_path: Path) -> None:
    once = tmp_path / "once"
    script = f"test -e {once} || {{ touch {once}; exit 1; }}"
    async with dev(tmp_path) as running, running.client() as client:
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=9)
        task = {"kind": "shell", "argv": ["true"]}
        await client.create_job({"name": "later", "task": task})
        delayed = (await client.trigger("later", wire.RunNow(at=at))).execution_id
        await client.create_job({"name": "once", "task": task, "schedule": {"at": at.isoformat()}})
        retries = {"max": 1, "base": "8s", "jitter": "none"}
        spec = {"name": "again", "task": {"kind": "shell", "argv": [script], "shell": True}, "retries": retries}
        await client.create_job(spec)
        retried = (await client.trigger("again")).execution_id

        async def backs_off() -> bool:
            found = await client.execution(retried)
            return found.state == "waiting" and found.attempt == 1

        await until_async("the first attempt", backs_off, within_s=60)
        assert (await client.execution(delayed)).state == "waiting"
        (one_time,) = [e.execution_id for e in (await client.history("once")).items]
        await running.kill("mainspring.cli.main serve")

        async def answers() -> bool:
            try:
                return bool(await client.execution(delayed))
            except Unavailable:
                return False

        await until_async("the new server", answers, within_s=60)
        ended = [await client.wait(execution, timeout_s=120) for execution in (delayed, one_time, retried)]
    assert [found.state for found in ended] == ["succeeded"] * 3
    assert [found.attempt for found in ended] == [1, 1, 2]
    assert all(found.queued_at is not None and found.queued_at >= found.due_at for found in ended), "none early"
    assert [found.due_at for found in ended[:2]] == [at, at]
    (first, _) = ended[2].attempts
    assert (ended[2].due_at - first.ended_at).total_seconds() == pytest.approx(8, abs=0.1)
