"""`mainspring dev` as root: its jobs are another user's."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import dev, until_async

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="only root can start other users' jobs")]

FUNCTION = """
import os
import mainspring as ms

def content(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().replace(chr(0), " ")
    except OSError:
        return None

@ms.job(retries=0)
def probe() -> dict:
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    readable = {pid: text for pid in pids if (text := content(f"/proc/{pid}/environ")) is not None}
    return {
        "uid": os.getuid(),
        "token": content(".mainspring/token"),
        "folder": sorted(os.listdir(".")),
        "shown": [content(f"/proc/{pid}/cmdline") or "" for pid in readable],
        "environs": list(readable.values()),
        "home": os.environ["HOME"],
        "aws": os.environ.get("AWS_SECRET"),
    }
"""
SECOND = FUNCTION + "\n@ms.job\ndef second() -> int:\n    return 2\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can read; pytest's own are private."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    (path / "jobs").mkdir()
    (path / "jobs" / "probe.py").write_text(FUNCTION)
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_jobs_cannot_read_the_token_the_database_or_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "s3cret")
    async with dev(folder) as running, running.client() as client:
        assert "Jobs run as uid" in running.text() and "cannot read the admin token" in running.text()

        async def declared(name: str) -> bool:
            return any(job.name == name for job in (await client.jobs()).items)

        await until_async("the job", lambda: declared("probe"), within_s=30)
        done = await client.wait((await client.trigger("probe")).execution_id, timeout_s=60)
        assert done.state == "succeeded", done
        found = done.result
        assert found["uid"] not in (0, os.geteuid()) and found["token"] is None and found["aws"] is None
        assert {".mainspring", "jobs"} <= set(found["folder"]), "the folder itself stays readable"
        # Other runners, but not the processes that hold the token, though their user is the same.
        assert not [line for line in found["shown"] if "guardian" in line or "mainspring.cli" in line]
        for text in found["environs"]:
            assert "MAINSPRING_DATABASE_URL" not in text and "MAINSPRING_TOKEN" not in text
        await client.create_job({"name": "program", "task": {"kind": "shell", "argv": ["id", "-u"]}})
        program = await client.wait((await client.trigger("program")).execution_id, timeout_s=60)
        assert [c.text for c in (await client.logs(program.execution_id)).chunks] == [f"{found['uid']}\n"]
        (folder / "jobs" / "probe.py").write_text(SECOND)
        await until_async("the changed file", lambda: declared("second"), within_s=30)
        worker = running.child("mainspring.cli.main worker")
        assert worker is not None
        await running.kill("mainspring.cli.main worker")
        again = await client.wait((await client.trigger("second")).execution_id, timeout_s=60)
        assert again.result == 2, "a restarted worker gets its token again"
        assert not any("root" in note for note in (await client.doctor()).notes)
    assert not exists(found["home"])


def exists(path: str) -> bool:
    return os.path.exists(path)


@pytest.mark.parametrize("reason", ["private folder", "--same-user"])
async def test_where_it_cannot_it_says_so(folder: Path, reason: str) -> None:
    options = ["--same-user"] if reason == "--same-user" else []
    os.chmod(folder, 0o755 if options else 0o700)
    async with dev(folder, *options) as running, running.client() as client:
        (line,) = [line for line in running.text().splitlines() if "Jobs run as" in line]
        assert "Jobs run as root: they can read the admin token and the database" in line
        assert ("--same-user" if options else str(folder)) in line
        notes = (await client.doctor()).notes
        assert any("worker local" in note and "runs as root" in note for note in notes), notes
