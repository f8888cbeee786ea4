"""disk_rate: programs that write too fast are paused, and can still be ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from mainspring.domain.job import ShellTask
from mainspring.domain.sandbox import Sandbox
from mainspring.worker.executors.shell import ShellExecutor
from mainspring.worker.isolation.disk_rate import WriteThrottle
from mainspring.worker.isolation.sandbox import SandboxSupport, detect_sandbox_support
from tests.support.attempts import attempt, host, written
from tests.support.processes import until

pytestmark = pytest.mark.anyio

SUPPORT = detect_sandbox_support()
needs_rate = pytest.mark.skipif("sandbox/disk_rate" not in SUPPORT.labels(), reason="no group can be made here")

PIECES = "i=0; while [ $i -lt 80 ]; do head -c 1048576 /dev/zero >> big; i=$((i+1)); done"
"""80 MiB by 80 processes: each is counted with the shell that waited for it."""

WRITER = """
import os, signal, sys, time
def leave(*_):
    print("asked to end", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, leave)
print(os.getpid(), flush=True)
with open("big", "wb", buffering=0) as file:
    for _ in range(4000):
        file.write(bytes(1 << 20))
        time.sleep(0.002)
"""


def state_of(pid: int) -> str:
    """T: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@needs_rate
@pytest.mark.parametrize("isolation", ["process", "bwrap"])
async def test_who_writes_too_fast_is_held_up_and_gets_through(isolation: str) -> None:
    if isolation == "bwrap" and SUPPORT.bwrap is None:
        pytest.skip("bubblewrap is not here, or may not make namespaces")
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=SUPPORT))
    work = attempt(ShellTask(argv=(PIECES,), shell=True))
    sandbox = msgspec.convert({"isolation": isolation, "disk_rate": "20Mi"}, Sandbox)
    work.definition = msgspec.structs.replace(work.definition, sandbox=sandbox)
    began = monotonic()
    done = await executor.execute(work)
    took = monotonic() - began
    await executor.stop()
    assert (done.outcome, done.error) == ("succeeded", None)
    assert took > 2.5, "left alone it takes a quarter of a second"


@needs_rate
async def test_a_stopped_program_hears_at_once_that_it_must_end() -> None:
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=SUPPORT))
    work = attempt(ShellTask(argv=(sys.executable, "-c", WRITER)))
    sandbox = Sandbox(disk_rate="64Ki")  # so that the first check finds minutes of excess
    work.definition = msgspec.structs.replace(work.definition, sandbox=sandbox)
    running = asyncio.create_task(executor.execute(work))
    seen = ""

    def is_stopped() -> bool:
        nonlocal seen
        seen += written(work)
        return bool(seen) and state_of(int(seen.split()[0])) == "T"

    await until("it stands still", is_stopped, within_s=20)
    work.request_stop("cancelled")
    done = await running
    await executor.stop()
    assert (done.outcome, done.exit_code) == ("cancelled", 3), "by its own way, not by SIGKILL"
    assert "asked to end" in written(work)


async def test_only_who_is_stopped_by_us_is_sent_on() -> None:
    """A process that stopped itself is not resumed."""
    own = await asyncio.create_subprocess_exec("/bin/sh", "-c", "kill -STOP $$; exit 7")
    await until("it has stopped itself", lambda: state_of(own.pid) == "T", within_s=10)
    pace = WriteThrottle(1 << 20, lambda: [own.pid])
    pace.check()
    pace.release()
    assert state_of(own.pid) == "T"
    own.kill()
    await own.wait()


def test_a_worker_without_groups_does_not_claim_it() -> None:
    assert "sandbox/disk_rate" not in SandboxSupport().labels()
