"""The error of a failed program has the last lines that it wrote to stderr, and dead letters are grouped by them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.fingerprint import fingerprint
from mainspring.domain.retry import error_type
from mainspring.worker.output import MAX_TAIL_LINE_CHARS, TAIL_LINES, Output
from tests.conftest import Cluster
from tests.support.api_jobs import ONCE, script

pytestmark = pytest.mark.anyio


def explained(*written: bytes, error: str = "exit code 3", max_bytes: int = 5_000_000) -> str:
    output = Output(uuid4(), 1, max_bytes=max_bytes)
    for data in written:
        output.write("stderr", data)
    return output.explain(error)


@pytest.mark.parametrize(
    ("written", "error"),
    [
        (b"", "exit code 3"),
        (b"\n  \n", "exit code 3"),
        (b"no such table\n", "exit code 3: no such table"),
        (b"first\nlast", "exit code 3: last\nfirst\nlast"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text\n", "exit code 3: red text"),
        (b"10 %\r50 %\r100 %\r\n", "exit code 3: 100 %"),
        (b"a\x00b\x07c\xff\n", "exit code 3: a b c\N{REPLACEMENT CHARACTER}"),
        ("left\N{RIGHT-TO-LEFT OVERRIDE}right\n".encode(), "exit code 3: left right"),
    ],
)
def test_the_last_lines_follow_the_exit_code(written: bytes, error: str) -> None:
    assert explained(written) == error
    assert explained(*(written[n : n + 1] for n in range(len(written)))) == error, "however it arrives"


def test_the_lines_are_bounded() -> None:
    error = explained(b"".join(b"line %d %s\n" % (n, b"x" * 1_000) for n in range(100)))
    lines = error.splitlines()[1:]
    assert 1 < len(lines) <= TAIL_LINES and max(map(len, lines)) <= MAX_TAIL_LINE_CHARS
    many = explained(b"".join(b"line %d\n" % n for n in range(100))).splitlines()
    assert many == ["exit code 3: line 99", *(f"line {n}" for n in range(100 - TAIL_LINES, 100))]


def test_the_last_lines_are_kept_when_the_output_is_full() -> None:
    assert explained(b"chatter\n" * 1000, b"the cause\n", max_bytes=100).startswith("exit code 3: the cause\n")


def test_failures_are_grouped_by_the_last_line_with_numbers_masked() -> None:
    def of(text: bytes) -> str:
        return fingerprint(explained(text), state="failed", exit_code=3)

    assert of(b"started at 10:00\ntable 17 is locked\n") == of(b"started at 11:30\ntable 99 is locked\n")
    assert of(b"table 17 is locked\n") != of(b"disk is full\n")
    assert error_type(explained(b"ValueError: no\n")) is None, "retry rules on error types do not match programs"


@pytest.mark.parametrize(
    "shell", ["echo trying >&2; echo 'disk is full' >&2; exit 3", "echo 'disk is full' >&2; kill -9 $$"]
)
async def test_lists_dead_letters_and_attempts_show_why_a_program_failed(cluster: Cluster, shell: str) -> None:
    async with cluster.client() as client, cluster.worker():
        job = await client.create_job(script(shell, retries=ONCE))
        done = await client.wait((await client.trigger(job.name)).execution_id, timeout_s=30)
        letter = await client.dead_letter(done.execution_id)
        (listed,) = (await client.history(job.name)).items
        (group,) = [g for g in (await client.dead_letter_groups()).items if g.job == job.name]
        attempts = (await client.execution(done.execution_id)).attempts
    first = "exit code 3: disk is full" if "exit" in shell else "ended by SIGKILL: disk is full"
    for error in (done.error, letter.error, listed.error, group.error, attempts[0].error):
        assert error is not None and error.splitlines()[0] == first
    assert group.what == first


async def test_other_errors_are_other_groups(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker():
        job = await client.create_job(script('echo "no table $N" >&2; exit 1', retries=ONCE, env={"N": "{{params.n}}"}))
        for n in (1, 2, "x"):
            await _fail(client, job.name, n)
        groups = [g for g in (await client.dead_letter_groups()).items if g.job == job.name]
    assert sorted(g.count for g in groups) == [1, 2]


async def _fail(client: AsyncClient, job: str, n: object) -> None:
    run = await client.trigger(job, wire.RunNow(params={"n": n}))
    assert (await client.wait(run.execution_id, timeout_s=30)).state == "failed"
