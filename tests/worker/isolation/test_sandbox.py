"""Sandbox limits: programs and functions that exceed one fail with its name, without affecting others."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask, ShellTask, check
from mainspring.domain.placement.line import demand_of
from mainspring.domain.sandbox import Sandbox
from mainspring.worker.executors import Done, Work
from mainspring.worker.executors.shell import ShellExecutor
from mainspring.worker.isolation.cgroup import CgroupRoots, find_cgroups
from mainspring.worker.isolation.sandbox import SandboxSupport, detect_sandbox_support
from tests.conftest import Cluster
from tests.support.attempts import attempt, host, written
from tests.support.processes import alive, command_line, until
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

SUPPORT = detect_sandbox_support()
needs_memory = pytest.mark.skipif(
    SUPPORT.labels().get("sandbox/memory") != "cgroup", reason="no memory group can be made here"
)
needs_pids = pytest.mark.skipif("sandbox/pids" not in SUPPORT.labels(), reason="no pids group can be made here")
needs_bwrap = pytest.mark.skipif(SUPPORT.bwrap is None, reason="bubblewrap is not here, or may not make namespaces")


@pytest.fixture
async def executor() -> AsyncIterator[ShellExecutor]:
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=SUPPORT))
    yield executor
    assert executor._folders is not None
    used = set(executor._folders.root.iterdir())
    assert used == set(executor._folders._spare), "every attempt's folder is gone, or as good as new"
    await executor.stop()
    assert not _groups(), "and so is its group"


def _groups() -> list[Path]:
    bases = SUPPORT.cgroups.folders.values() if SUPPORT.cgroups else ()
    return [folder for base in bases for folder in base.glob(f"mainspring-{os.getpid()}-*")]


async def see(
    executor: ShellExecutor, script: str, sandbox: dict[str, Any] | None, *, argv: tuple[str, ...] = (), **more: Any
) -> tuple[Done, Work]:
    work = attempt(ShellTask(argv=argv or (script,), shell=not argv), **more)
    if sandbox is not None:
        work.definition = msgspec.structs.replace(work.definition, sandbox=msgspec.convert(sandbox, Sandbox))
    done = await executor.execute(work)
    work.finish_output()
    return done, work


def gone(path: str) -> bool:
    return not Path(path).exists()


async def test_every_attempt_has_a_temporary_folder_of_its_own(executor: ShellExecutor) -> None:
    script = "echo $TMPDIR; touch $TMPDIR/a $TMPDIR/b; ls $TMPDIR | grep -c '^[ab]$'"
    first, second = [written((await see(executor, script, None))[1]).split() for _ in range(2)]
    assert first[0] != second[0]
    assert (first[1], second[1]) == ("2", "2")
    assert gone(first[0])


async def test_even_an_empty_sandbox_leaves_no_way_to_more_privileges(executor: ShellExecutor) -> None:
    done, work = await see(executor, "grep NoNewPrivs /proc/self/status; pwd; echo $TMPDIR; ulimit -c; exit 3", {})
    flag, pwd, folder, core = written(work).splitlines()
    assert (flag, core) == ("NoNewPrivs:\t1", "0")
    assert pwd == folder
    assert (done.outcome, done.exit_code, done.error) == ("failed", 3, "exit code 3")


async def test_a_program_that_is_not_there_is_named_in_a_sandbox_too(executor: ShellExecutor) -> None:
    done, work = await see(executor, "", {}, argv=("/no/such/program",))
    assert (done.outcome, done.exit_code) == ("failed", 127)
    assert "/no/such/program: No such file" in written(work, "stderr")


HOG = "import sys\nkept = []\nwhile True: kept.append(bytearray(1 << 20))"


@needs_memory
@pytest.mark.parametrize("isolation", ["process", pytest.param("bwrap", marks=needs_bwrap)])
async def test_a_memory_hog_is_told_as_such(executor: ShellExecutor, isolation: str) -> None:
    limits = {"memory": "64Mi", "isolation": isolation}
    done, _ = await see(executor, "", limits, argv=("/bin/sh", "-c", "a=x; while :; do a=$a$a; done"))
    assert (done.outcome, done.error) == ("failed", "out of memory: it used more than 64Mi")


async def test_without_groups_a_memory_hog_meets_the_limit_of_its_address_space() -> None:
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=SandboxSupport()))
    done, work = await see(executor, "", {"memory": "200Mi"}, argv=(sys.executable, "-c", HOG))
    await executor.stop()
    assert done.outcome == "failed"
    assert "MemoryError" in written(work, "stderr")


FORKS = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; wait"
"""At most sixty, so that a broken limit does no harm."""


@needs_pids
async def test_a_fork_bomb_stays_small_and_nothing_of_it_is_left(executor: ShellExecutor) -> None:
    done, work = await see(executor, f"echo $$; {FORKS}", {"pids": 16}, timeout_s=20)
    assert (done.outcome, done.error) == ("failed", "it started more than 16 processes")
    assert not alive(int(written(work).split()[0]))


async def test_a_file_that_grows_too_large_ends_its_writer(executor: ShellExecutor) -> None:
    done, _ = await see(executor, "exec head -c 20000000 /dev/zero > $TMPDIR/big", {"file_size": "1Mi"})
    assert (done.outcome, done.error) == ("failed", "it wrote a file of more than 1Mi")


async def test_a_disk_filler_ends_when_its_folder_is_full(executor: ShellExecutor) -> None:
    script = "i=0; while [ $i -lt 200 ]; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done; sleep 20"
    done, _ = await see(executor, script, {"disk": "10Mi"}, timeout_s=20)
    assert done.outcome == "failed"
    assert done.error == "it wrote more than 10Mi into its temporary folder"


async def test_too_much_cpu_is_told_as_such(executor: ShellExecutor) -> None:
    done, _ = await see(executor, "", {"cpu_time": 1}, argv=("/bin/sh", "-c", "while :; do :; done"), timeout_s=20)
    assert (done.outcome, done.error) == ("failed", "it used more than 1 of CPU time")


@pytest.mark.skipif("sandbox/cpu" not in SUPPORT.labels(), reason="no cpu group can be made here")
async def test_cpu_is_held_to_a_share(executor: ShellExecutor) -> None:
    """A tenth of a core: one second of work takes far more than a second."""
    spin = (
        "import time\nb = time.monotonic(); c = 0.0\nwhile time.monotonic() - b < 2: c += 1\nprint(time.process_time())"
    )
    done, work = await see(executor, "", {"cpu": 0.1}, argv=(sys.executable, "-c", spin))
    assert done.outcome == "succeeded"
    assert float(written(work)) < 0.8


DAEMON = (
    "import os, sys, time\n"
    "if os.fork(): time.sleep(0.2); sys.exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "print(os.getpid(), flush=True)\n"
    "os.execve('/bin/sleep', ['sleep', '300'], {})\n"
)


@needs_pids
async def test_a_child_that_daemonises_does_not_outlive_its_attempt(executor: ShellExecutor) -> None:
    """A daemon leaves its session, parent and environment, but not its cgroup."""
    done, work = await see(executor, "", {}, argv=(sys.executable, "-c", DAEMON))
    assert done.outcome == "succeeded"
    daemon = int(written(work))
    await until("the daemon's end", lambda: not alive(daemon), within_s=5)


@needs_bwrap
async def test_bwrap_shows_a_read_only_system_and_no_network(executor: ShellExecutor, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    script = (
        "touch /etc/mainspring-was-here 2>&1; touch /tmp/mine && ls /tmp; cat /proc/net/dev | tail -n +3 | cut -d: -f1;"
        f" ls {secret} 2>&1; ls /proc | grep -c '^[0-9]'; ls /run; grep CapEff /proc/self/status"
    )
    done, work = await see(executor, script, {"isolation": "bwrap"})
    seen = written(work)
    assert done.outcome == "succeeded"
    assert "Read-only file system" in seen and gone("/etc/mainspring-was-here")
    assert "mine" in seen and gone("/tmp/mine")
    assert [word for word in seen.split() if word in ("lo", "eth0")] == ["lo"]
    assert f"cannot access '{secret}'" in seen or "No such file" in seen
    assert "CapEff:\t0000000000000000" in seen


@needs_bwrap
async def test_a_cancelled_one_in_bwrap_ends_with_all_it_started(executor: ShellExecutor) -> None:
    mark = f"6{uuid4().int % 10**6}"
    work = attempt(ShellTask(argv=(f"setsid sleep {mark} & sleep {mark}",), shell=True))
    work.definition = msgspec.structs.replace(work.definition, sandbox=Sandbox(isolation="bwrap"))
    running = asyncio.create_task(executor.execute(work))
    await until("both", lambda: len(_sleeping(mark)) == 2, within_s=10)
    work.request_stop("cancelled")
    assert (await running).outcome == "cancelled"
    await until("the end of both", lambda: not _sleeping(mark), within_s=5)


def _sleeping(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(entry.name)
        except OSError:
            continue
    return found


@needs_memory
@needs_pids
@pytest.mark.parametrize(
    ("script", "limits", "cause"),
    [
        (FORKS, {"pids": 16}, "it started more than 16 processes"),
        ("a=x; while :; do a=$a$a; done", {"memory": "64Mi"}, "out of memory: it used more than 64Mi"),
        ("while :; do head -c 9000000 /dev/zero >> f; done", {"disk": "10Mi"}, "it wrote more than 10Mi into its"),
    ],
)
async def test_neighbours_go_on_beside_one_that_a_limit_ends(
    executor: ShellExecutor, script: str, limits: dict[str, Any], cause: str
) -> None:
    bad = asyncio.create_task(see(executor, script, limits, timeout_s=50))
    beside = [await see(executor, "sh -c 'echo fine'", {} if n % 2 else None) for n in range(6)]
    done, _ = await bad
    assert [(one.outcome, written(work)) for one, work in beside] == [("succeeded", "fine\n")] * 6
    assert done.outcome == "failed" and done.error is not None and done.error.startswith(cause)


async def test_a_flood_without_a_newline_costs_neither_memory_nor_the_neighbour(executor: ShellExecutor) -> None:
    """Of a thousand million bytes the first five million are stored; the rest is read and dropped."""
    flood = asyncio.create_task(see(executor, "head -c 1000000000 /dev/zero", {}))
    neighbour, other = await see(executor, "echo fine", None)
    done, work = await flood
    assert (neighbour.outcome, written(other)) == ("succeeded", "fine\n")
    assert done.outcome == "succeeded"
    chunks = work.take_output()
    assert sum(len(chunk.data) for chunk in chunks if chunk.stream == "stdout") == 5_000_000
    assert b"output truncated" in chunks[-1].data


async def test_binary_output_and_escapes_come_through_as_they_are(executor: ShellExecutor) -> None:
    data = bytes(range(256)) + b"\x1b[31mred\x1b[0m\x1b]0;title\x07"
    script = f"import sys; sys.stdout.buffer.write({data!r})"
    _, work = await see(executor, "", {}, argv=(sys.executable, "-c", script))
    assert b"".join(chunk.data for chunk in work.take_output()) == data


async def test_limits_hold_at_the_end_of_the_whole_way_and_the_worker_says_what_it_can(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "shell", "shell": True, "argv": ["head -c 20000000 /dev/zero > big"]}
    spec = {"name": queue, "task": task, "queue": queue, "retries": {"max": 0}, "sandbox": {"file_size": "1Mi"}}
    async with cluster.client() as client, cluster.worker(queues=(queue,), name=queue):
        await client.create_job(spec)
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        (shown,) = [w for w in (await client.workers()).items if w.name == queue]
    assert (done.state, done.error) == ("failed", "it wrote a file of more than 1Mi")
    assert shown.labels == SUPPORT.labels()


PYTHON_JOBS = """
import os, sys, subprocess, tempfile
import mainspring as ms

@ms.job()
def hog():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))

@ms.job()
def look(n: int):
    with open("/proc/self/status") as file:
        status = file.read()
    return {"n": n, "caged": "NoNewPrivs:\\t1" in status, "tmp": tempfile.gettempdir()}
"""


@pytest.mark.parametrize("isolation", ["process", pytest.param("bwrap", marks=needs_bwrap)])
@needs_memory
async def test_functions_have_a_sandbox_too(cluster: Cluster, tmp_path: Path, isolation: str) -> None:
    """Confined functions have their own runner; other functions continue in theirs."""
    queue = f"q{uuid4().hex}"
    (tmp_path / "caged.py").write_text(PYTHON_JOBS)
    limits = {"memory": "256Mi", "isolation": isolation}
    async with (
        cluster.client() as client,
        cluster.worker(queues=(queue,), name=queue, modules=(str(tmp_path / "caged.py"),)),
    ):
        for name in ("hog", "look"):
            task = {"kind": "python", "function": f"caged:{name}", "args": {"n": 7} if name == "look" else {}}
            spec = {"name": f"{queue}{name}", "task": task, "queue": queue, "retries": {"max": 0}, "sandbox": limits}
            await client.create_job(spec)
        hog = await client.trigger(f"{queue}hog")
        look = await client.wait((await client.trigger(f"{queue}look")).execution_id, timeout_s=30)
        hog = await client.wait(hog.execution_id, timeout_s=60)
    assert (look.state, look.error) == ("succeeded", None)
    assert look.result["n"] == 7 and look.result["caged"] and look.result["tmp"] != "/tmp"
    assert gone(look.result["tmp"])
    assert (hog.state, hog.error) == ("failed", "out of memory: it used more than 256Mi")


def test_a_job_with_a_sandbox_goes_only_to_workers_that_can_hold_it() -> None:
    spec = JobSpec(name="x", task=ShellTask(argv=("true",)), sandbox=Sandbox(isolation="bwrap", pids=5))
    assert demand_of(spec).labels == {"sandbox/rlimits": "*", "sandbox/pids": "*", "sandbox/bwrap": "*"}
    chosen = msgspec.structs.replace(spec, labels={"sandbox/pids": "cgroup"})
    assert demand_of(chosen).labels["sandbox/pids"] == "cgroup"


@pytest.mark.parametrize(
    ("sandbox", "pointer"),
    [
        ({"memory": "1x"}, "/sandbox/memory"),
        ({"memory": 1}, "/sandbox/memory"),
        ({"cpu": "0.001"}, "/sandbox/cpu"),
        ({"cpu_time": "0.2s"}, "/sandbox/cpu_time"),
        ({"network": True}, "/sandbox/network"),
    ],
)
def test_a_sandbox_that_can_not_be_is_refused(sandbox: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(JobSpec(name="x", task=ShellTask(argv=("true",)), sandbox=msgspec.convert(sandbox, Sandbox)))
    assert refused.value.problems[0].pointer == pointer


def test_only_programs_and_functions_have_one() -> None:
    with pytest.raises(Invalid, match="only shell and python"):
        check(JobSpec(name="x", task=NoopTask(), sandbox=Sandbox()))


def test_one_tree_of_groups_is_found_where_it_is_delegated(tmp_path: Path) -> None:
    """Which files are written, and with what, in a copy of the kernel's folder. The other tests use the real one."""
    base = tmp_path / "system.slice" / "worker.service"
    base.mkdir(parents=True)
    for folder in (tmp_path, base):
        (folder / "cgroup.controllers").write_text("cpu io memory pids\n")
    own = tmp_path / "own"
    own.write_text("0::/system.slice/worker.service\n")
    found = find_cgroups(tmp_path, own)
    assert found == CgroupRoots(dict.fromkeys(("cpu", "memory", "pids"), base), unified=True)
    assert (base / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    group = found.create({"memory": 1 << 20, "pids": 5, "cpu": 500})
    (folder,) = group.folders
    assert {file.name: file.read_text() for file in folder.iterdir() if file.is_file()} == {
        "memory.max": "1048576",
        "memory.swap.max": "0",
        "pids.max": "5",
        "cpu.max": "50000 100000",
    }
    assert group.procs_files == [str(folder / "members" / "cgroup.procs")], "which has no files to change the limits"
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.out_of_memory() and not group.out_of_pids()
    shutil.rmtree(folder)


def test_groups_of_a_dead_worker_are_cleared(tmp_path: Path) -> None:
    gone = tmp_path / f"mainspring-{2**22 + 1}-0"
    ours = tmp_path / f"mainspring-{os.getpid()}-0"
    gone.mkdir()
    ours.mkdir()
    CgroupRoots({"pids": tmp_path}, unified=True).remove_orphans()
    assert (gone.exists(), ours.exists()) == (False, True)


@needs_pids
async def test_a_daemon_in_a_cell_does_not_outlive_a_killed_worker(cluster: Cluster, tmp_path: Path) -> None:
    """The guardian finds a process without its environment and outside its session by its cgroup."""
    queue = f"q{uuid4().hex}"
    mark = tmp_path / "pid"
    hide = DAEMON.replace("print(os.getpid(), flush=True)", f"open({str(mark)!r}, 'w').write(str(os.getpid()))")
    task = {"kind": "shell", "argv": [sys.executable, "-c", hide.replace("time.sleep(0.2)", "time.sleep(600)")]}
    async with cluster.client() as client:
        await client.create_job({"name": queue, "task": task, "queue": queue, "sandbox": {}})
        await client.trigger(queue)
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-q", queue) as program:
            await until("the daemon", lambda: mark.exists() and bool(mark.read_text()), within_s=20)
            daemon = int(mark.read_text())
            await until("its last step", lambda: "sleep" in command_line(daemon), within_s=10)
            program.send(signal.SIGKILL)
            await until("the daemon's end", lambda: not alive(daemon), within_s=10)


async def test_the_folders_of_a_killed_worker_are_gone(cluster: Cluster, tmp_path: Path) -> None:
    queue = f"q{uuid4().hex}"
    mark = tmp_path / "folder"
    script = f"head -c 100000 /dev/zero > $TMPDIR/left; echo $TMPDIR > {mark}; sleep 600"
    async with cluster.client() as client:
        task = {"kind": "shell", "shell": True, "argv": [script]}
        await client.create_job({"name": queue, "task": task, "queue": queue})
        await client.trigger(queue)
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-q", queue) as program:
            await until("its folder", lambda: mark.exists() and mark.read_text().endswith("\n"), within_s=20)
            folder = mark.read_text().strip()
            assert not gone(f"{folder}/left")
            program.send(signal.SIGKILL)
            await until("the end of the folder", lambda: gone(os.path.dirname(folder)), within_s=20)
