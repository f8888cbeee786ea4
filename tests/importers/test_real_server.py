"""`mainspring import` against a real server: jobs appear, and a second import changes nothing."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import Cluster
from tests.support.imports import SAMPLES

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(sys.executable).with_name("mainspring"))
CRONTAB = """\
MAILTO=ops@example.org
# nightly backup
30 2 * * * /usr/bin/backup --all
*/5 * * * * /usr/bin/poll
"""


@dataclass
class Done:
    code: int | None
    out: str
    err: str

    def json(self) -> Any:
        return msgspec.json.decode(self.out)


async def run(cluster: Cluster, folder: Path, *words: str, stdin: str = "") -> Done:
    env = {
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "MAINSPRING_URL": cluster.url,
        "MAINSPRING_TOKEN": cluster.token,
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *words, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate(stdin.encode())
    return Done(process.returncode, out.decode(), err.decode())


async def test_a_crontab_is_imported_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_text(CRONTAB)
    words = ("import", "crontab", "crontab", "--tz", "Europe/Berlin", "--prefix", "once-", "--owner", "ops")
    planned = await run(cluster, tmp_path, *words, "--dry-run")
    assert planned.code == 0, planned.err
    assert "2 to import; 2 of 2 schedules have equal fires (2,000 fires, 8 clock changes)" in planned.out
    assert "crontab:1: MAILTO=ops@example.org" in planned.out
    async with cluster.client() as client:
        assert (await client.jobs(prefix="once-")).items == []

        first = await run(cluster, tmp_path, *words)
        assert first.code == 0, first.err
        assert "2 created" in first.out
        jobs = {job.name: job for job in (await client.jobs(prefix="once-")).items}
        assert set(jobs) == {"once-nightly-backup", "once-poll"}
        backup = jobs["once-nightly-backup"]
        assert (backup.version, backup.spec.metadata["owner"]) == (1, "ops")
        assert backup.next_fire_at is not None

        second = await run(cluster, tmp_path, *words, "-o", "json")
        assert second.code == 0, second.err
        entries = second.json()["entries"]
        assert [(entry["action"], entry["equal"], entry["fires_compared"]) for entry in entries] == [
            ("unchanged", True, 1000),
            ("unchanged", True, 1000),
        ]
        again = {job.name: job for job in (await client.jobs(prefix="once-")).items}
        assert [(job.version, job.updated_at) for job in again.values()] == [
            (job.version, job.updated_at) for job in jobs.values()
        ]
        await client.pause_job("once-poll", "by hand")
        assert "2 unchanged" in (await run(cluster, tmp_path, *words)).out


async def test_a_job_that_differs_is_a_conflict(cluster: Cluster, tmp_path: Path) -> None:
    async def imported(text: str, *more: str) -> Done:
        return await run(cluster, tmp_path, "import", "crontab", "-", "--prefix", "c-", *more, stdin=text)

    assert (await imported("0 1 * * * /bin/a\n")).code == 0
    changed = "0 1 * * * /bin/b\n0 2 * * * /bin/a -x\n"
    refused = await imported(changed)
    assert refused.code == 5, refused.err
    assert "✖ conflict (schedule, task)" in refused.out and "nothing was written" in refused.err
    async with cluster.client() as client:
        assert [job.name for job in (await client.jobs(prefix="c-")).items] == ["c-a"]
        replaced = await imported(changed, "--replace")
        assert replaced.code == 0, replaced.err
        assert "1 created, 1 changed" in replaced.out
        assert (await client.job("c-a")).version == 2


async def test_unsupported_entries_stop_the_import(cluster: Cluster, tmp_path: Path) -> None:
    text = "@reboot /bin/start\n0 1 * * * /bin/u\n"
    words = ("import", "crontab", "-", "--prefix", "u-")
    refused = await run(cluster, tmp_path, *words, stdin=text)
    assert refused.code == 6
    assert "stdin:1: " in refused.out and "--skip-unsupported" in refused.err
    async with cluster.client() as client:
        assert (await client.jobs(prefix="u-")).items == []
        skipped = await run(cluster, tmp_path, *words, "--skip-unsupported", "--paused", stdin=text)
        assert skipped.code == 0, skipped.err
        (job,) = (await client.jobs(prefix="u-")).items
        assert (job.name, job.state) == ("u-u", "paused")


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("k8s", "k8s"),
        ("celery", "celery"),
        ("systemd", "systemd"),
        ("airflow", "dags"),
        ("apscheduler", "apscheduler"),
        ("quartz", "quartz"),
        ("eventbridge", "eventbridge"),
        ("cloud-scheduler", "cloud_scheduler"),
    ],
)
async def test_every_source_is_accepted_by_the_server(
    cluster: Cluster, tmp_path: Path, source: str, folder: str
) -> None:
    words = ("import", source, str(SAMPLES / folder), "--prefix", f"{source}-", "--skip-unsupported", "-o", "json")
    first = await run(cluster, tmp_path, *words)
    assert first.code == 0, first.err
    entries = first.json()["entries"]
    assert entries and {entry["action"] for entry in entries} == {"created"}
    second = await run(cluster, tmp_path, *words)
    assert second.code == 0, second.err
    assert {entry["action"] for entry in second.json()["entries"]} == {"unchanged"}


async def test_a_missing_file_and_a_wrong_encoding(cluster: Cluster, tmp_path: Path) -> None:
    missing = await run(cluster, tmp_path, "import", "crontab", "nowhere")
    assert (missing.code, missing.err) == (3, "Error: nowhere does not exist\n")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf0 1 * * * /bin/a\n")
    assert (await run(cluster, tmp_path, "import", "crontab", "marked", "--dry-run")).code == 0
    (tmp_path / "latin").write_bytes(b"0 1 * * * /bin/a\n# \xe9\n")
    wrong = await run(cluster, tmp_path, "import", "crontab", "latin")
    assert wrong.code == 6 and "latin:2: the text is not UTF-8" in wrong.err
