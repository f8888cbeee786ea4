"""A large artifact through real processes arrives intact, and no process holds it in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.processes import Dev, dev

pytestmark = pytest.mark.anyio

SIZE = 100_000_000
SCRIPT = f"cd $MAINSPRING_ARTIFACTS; head -c {SIZE} /dev/urandom > big; sha256sum big | cut -d' ' -f1"


def peak(running: Dev, word: str) -> int:
    """The peak memory of a child process in bytes."""
    status = Path(f"/proc/{running.child(word)}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


async def test_a_hundred_megabytes_go_up_and_down_intact_without_growing_anybody(tmp_path: Path) -> None:
    async with dev(tmp_path) as running, running.client() as client:
        task = {"kind": "shell", "shell": True, "argv": [SCRIPT]}
        for name in ("small", "big"):  # everything is loaded and warm after the first
            await client.create_job({"name": name, "task": task if name == "big" else {"kind": "noop"}})
        await client.wait((await client.trigger("small")).execution_id, timeout_s=30)
        before = {word: peak(running, word) for word in ("serve", "worker")}
        done = await client.wait((await client.trigger("big")).execution_id, timeout_s=120)
        assert done.state == "succeeded", done.error
        said = "".join(chunk.text for chunk in (await client.logs(done.execution_id)).chunks).strip()
        digest, size = hashlib.sha256(), 0
        async for piece in client.artifact(done.execution_id, "big"):
            digest.update(piece)
            size += len(piece)
        grown = {word: peak(running, word) - before[word] for word in before}
    assert (size, digest.hexdigest()) == (SIZE, said)
    assert max(grown.values()) < 20_000_000, grown
