"""Dead letters over HTTP, on a whole server whose leader follows replays."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, NotFound
from tests.conftest import Cluster
from tests.support.api_jobs import script
from tests.support.api_tokens import Issue
from tests.support.principals import without_ids
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

DEAD_LETTERS = "/api/v1/dead-letters"


def failing(**more: Any) -> dict[str, Any]:
    return script("echo oh no >&2; exit 3", retries={"max": 1, "base": 0}, **more)


async def dead(client: AsyncClient, job: wire.Job) -> wire.DeadLetter:
    """Runs the job until it has failed for good."""
    execution = await client.trigger(job.name)
    final = await client.wait(execution.execution_id, timeout_s=30)
    assert final.state == "failed"
    return await client.dead_letter(final.execution_id)


async def reaches(client: AsyncClient, letter: wire.DeadLetter, state: str) -> wire.DeadLetter:
    async def there() -> bool:
        return (await client.dead_letter(letter.dead_letter_id)).state == state

    await until_async(f"the dead letter is {state}", there, within_s=20)
    return await client.dead_letter(letter.dead_letter_id)


async def test_fail_look_fix_replay_resolved(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(failing())
    async with cluster.worker(name="alpha"):
        letter = await dead(client, job)
        assert (letter.job, letter.version, letter.error, letter.exit_code) == (job.name, 1, "exit code 3: oh no", 3)
        assert [(a.outcome, a.exit_code, a.worker) for a in letter.attempts] == [("failed", 3, "alpha")] * 2
        (group,) = [g for g in (await client.dead_letter_groups()).items if g.job == job.name]
        assert (group.count, group.what, group.sample_id) == (1, "exit code 3: oh no", letter.dead_letter_id)
        await client.patch_job(job.name, {"task": {"argv": ["true"], "shell": False}})
        replay = await client.replay_dead_letter(str(letter.dead_letter_id)[:23])
        assert await client.replay_dead_letter(letter.dead_letter_id) == wire.Replay(
            dry_run=False,
            replayed=1,
            held=0,
            refused=0,
            items=[wire.ReplayItem(dead_letter_id=letter.dead_letter_id, execution_id=replay.items[0].execution_id)],
        )
        resolved = await reaches(client, letter, "resolved")
    assert resolved.resolved_by == replay.items[0].execution_id
    assert {e.trigger: e.state for e in (await client.history(job.name)).items} == {
        "manual": "failed",
        "replay": "succeeded",
    }
    assert (await client.doctor()).findings == []


async def test_a_canary_lets_the_others_follow(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(failing())
    async with cluster.worker():
        letters = [await dead(client, job) for _ in range(3)]
        await client.patch_job(job.name, {"task": {"argv": ["true"], "shell": False}})
        answer = await client.replay_dead_letters(wire.ReplayMany(job=job.name, canary=True))
        assert (answer.replayed, answer.held) == (1, 2)
        for letter in letters:
            await reaches(client, letter, "resolved")
    assert len((await client.history(job.name)).items) == 6


@pytest.mark.requirement(120)
async def test_only_who_may_operate_reads_dead_letters(cluster: Cluster, client: AsyncClient, issue: Issue) -> None:
    job = await client.create_job(failing())
    async with cluster.worker():
        letter = await dead(client, job)
    for scope in ("read", "write", "worker"):
        async with AsyncClient(cluster.url, await issue(scope)) as other:
            for ask in (other.dead_letters(), other.dead_letter_groups(), other.dead_letter(letter.dead_letter_id)):
                with pytest.raises(Forbidden, match="operate"):
                    await ask
    async with AsyncClient(cluster.url, await issue("operate")) as operator:
        assert (await operator.dead_letter(letter.dead_letter_id)).job == job.name
        claimed = await operator.claim_dead_letter(letter.dead_letter_id)
        assert without_ids(claimed.claimed_by) == "test ('operate',)"
        with pytest.raises(Conflict, match=r"test \('operate',\) \[[0-9a-f]{8}\] has claimed it"):
            await client.dismiss_dead_letter(letter.dead_letter_id, "x")
        async with AsyncClient(cluster.url, await issue("operate")) as namesake:
            with pytest.raises(Conflict, match="has claimed it"):
                await namesake.dismiss_dead_letter(letter.dead_letter_id, "x")
        done = await operator.dismiss_dead_letter(letter.dead_letter_id, "known")
    assert (done.state, done.close_reason) == ("dismissed", "known")


async def test_a_neighbour_finds_nothing(cluster: Cluster, client: AsyncClient, neighbour: AsyncClient) -> None:
    job = await client.create_job(failing())
    async with cluster.worker():
        letter = await dead(client, job)
    for ask in (
        neighbour.dead_letter(letter.dead_letter_id),
        neighbour.claim_dead_letter(letter.dead_letter_id),
        neighbour.replay_dead_letter(letter.dead_letter_id),
        neighbour.dismiss_dead_letter(letter.dead_letter_id, "x"),
        neighbour.edit_dead_letter(letter.dead_letter_id, wire.DeadLetterEdit(note="x")),
    ):
        with pytest.raises(NotFound):
            await ask
    assert (await neighbour.dead_letters()).items == []
    assert (await client.dead_letter(letter.dead_letter_id)).state == "open"


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "?state=closed", None, "use one of open"),
        ("GET", ":groups?cursor=x", None, "cursor"),
        ("POST", ":replay", {}, "every open dead letter"),
        ("POST", ":dismiss", {"job": "x"}, "reason"),
        ("POST", ":claim", {"for": "a while"}, "not a duration"),
        ("POST", ":replay", {"ids": ["x"]}, "ids"),
    ],
)
async def test_what_is_wrong_is_said(
    http: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any] | None, words: str
) -> None:
    answer = await http.request(method, DEAD_LETTERS + path, json=body)
    assert answer.status_code == 422, answer.text
    assert words in answer.text


async def test_the_count_is_a_metric(cluster: Cluster, client: AsyncClient, http: httpx2.AsyncClient) -> None:
    job = await client.create_job(failing())
    async with cluster.worker():
        await dead(client, job)
    open_now = len((await client.dead_letters(state=["open"], limit=500)).items)
    assert f"mainspring_dead_letters {open_now:.1f}" in (await http.get("/metrics")).text.splitlines()
