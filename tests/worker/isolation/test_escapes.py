"""Ways out of a sandbox that programs try: loader variables, cgroup files, working directories, sockets."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.domain.job import JobSpec, ShellTask, problems_of
from mainspring.domain.sandbox import MASKED, Sandbox, is_below
from mainspring.worker.executors import Done, Work
from mainspring.worker.executors.shell import ShellExecutor
from mainspring.worker.isolation.sandbox import SandboxSupport, detect_sandbox_support
from tests.support.attempts import attempt, host, written
from tests.support.processes import alive

pytestmark = pytest.mark.anyio

SUPPORT = detect_sandbox_support()
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
needs_bwrap = pytest.mark.skipif(SUPPORT.bwrap is None, reason="bubblewrap is not here, or may not make namespaces")
needs_cgroups = pytest.mark.skipif(SUPPORT.cgroups is None, reason="no cgroup can be made here")
needs_protection = pytest.mark.skipif(not SUPPORT.protects_cgroups, reason="no mount namespace can be made here")
ISOLATIONS = ["process", pytest.param("bwrap", marks=needs_bwrap)]
PYTHON = os.path.realpath(sys.executable)

LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
__attribute__((constructor)) static void begin(void) {
    struct rlimit limit;
    FILE *file = fopen(getenv("MARKS"), "a");
    if (file == NULL) return;
    getrlimit(RLIMIT_NOFILE, &limit);
    fprintf(file, "%lu\\n", (unsigned long)limit.rlim_cur);
    fclose(file);
}
unsigned la_version(unsigned version) { return version; }
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that bwrap shows: not below /tmp."""
    folder = Path(tempfile.mkdtemp(prefix=".escapes-", dir=Path.home()))
    if is_below(str(folder.resolve()), MASKED):
        pytest.skip("the home folder is masked")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def executor() -> AsyncIterator[ShellExecutor]:
    async for executor in started(SUPPORT):
        yield executor


async def started(support: SandboxSupport) -> AsyncIterator[ShellExecutor]:
    executor = ShellExecutor()
    await executor.start(host(sandbox_support=support))
    yield executor
    await executor.stop()
    bases = set(support.cgroups.folders.values()) if support.cgroups else set()
    assert not [folder for base in bases for folder in base.glob(f"mainspring-{os.getpid()}-*")]


async def run(executor: ShellExecutor, task: ShellTask, sandbox: dict[str, Any]) -> tuple[Done, Work]:
    work = attempt(task)
    work.definition = msgspec.structs.replace(work.definition, sandbox=msgspec.convert(sandbox, Sandbox))
    return await executor.execute(work), work


def compile_library(path: Path) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-"]
    subprocess.run(command, input=LIBRARY, text=True, check=True)


@needs_cc
@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_library_of_the_job_is_not_loaded_before_the_limits_hold(
    executor: ShellExecutor, isolation: str, variable: str, outside: Path
) -> None:
    library, marks = outside / "library.so", outside / "marks"
    compile_library(library)
    env = {variable: str(library), "MARKS": str(marks)}
    done, work = await run(
        executor, ShellTask(argv=("/bin/echo", "ran"), env=env), {"isolation": isolation, "open_files": 77}
    )
    assert (done.outcome, written(work)) == ("succeeded", "ran\n")
    if isolation == "bwrap":
        assert not marks.exists(), "the system is read-only for everything that the job runs"
    else:
        assert set(marks.read_text().split()) == {"77"}


async def test_variables_of_the_job_do_not_reach_the_launcher(executor: ShellExecutor, outside: Path) -> None:
    """The interpreter that applies the limits has no variables at all; the program has all of its own."""
    env = {"PYTHONHOME": "/nowhere", "PYTHONPATH": str(outside), "LC_ALL": "xx", "A": "b c\n'$x"}
    code = "import os; print(os.environ['PYTHONPATH'], os.environ['A'], end='')"
    done, work = await run(executor, ShellTask(argv=(sys.executable, "-E", "-c", code), env=env), {})
    assert done.outcome == "succeeded"
    assert written(work) == f"{outside} b c\n'$x"


LEAVE = """
for file in {files}; do
  {{ echo $$ > $file; }} 2>/dev/null && echo left
  mount -o remount,rw,bind $(dirname $file) 2>/dev/null && {{ echo $$ > $file; }} 2>/dev/null && echo left
  {{ echo $$ > /proc/{worker}/root$file; }} 2>/dev/null && echo left
  nsenter -t {worker} -m sh -c "echo $$ > $file" 2>/dev/null && echo left
  unshare -Urm sh -c "mount -o remount,rw,bind $(dirname $file); echo $$ > $file" 2>/dev/null && echo left
done
unshare -UrmC sh -c 'mkdir m; mount -t cgroup2 none m && echo max > m/memory.max; echo -1 > m/memory.limit_in_bytes'
echo tried
a=x; while :; do a=$a$a; done
"""


@needs_protection
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_program_cannot_leave_its_cgroup(executor: ShellExecutor, isolation: str) -> None:
    assert SUPPORT.cgroups is not None
    if "memory" not in SUPPORT.cgroups.folders:
        pytest.skip("no memory group can be made here")
    files = " ".join({f"{folder}/cgroup.procs" for folder in SUPPORT.cgroups.folders.values()})
    script = LEAVE.format(files=files, worker=os.getpid())
    task = ShellTask(argv=("timeout", "60", "/bin/sh", "-c", script))
    done, work = await run(executor, task, {"isolation": isolation, "memory": "64Mi"})
    assert written(work) == "tried\n"
    assert done.error == "out of memory: it used more than 64Mi"


@needs_cgroups
async def test_a_cgroup_below_its_own_hides_no_process(executor: ShellExecutor, tmp_path: Path) -> None:
    """Without limits nothing is promised but the end of every process."""
    assert SUPPORT.cgroups is not None
    root = next(iter(SUPPORT.cgroups.folders.values()))
    code = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "own = next(p.parent for p in Path(sys.argv[1]).glob('mainspring-*/members/cgroup.procs')"
        " if str(os.getpid()) in p.read_text().split())\n"
        "(own / 'a' / 'b').mkdir(parents=True)\n"
        "hidden = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "(own / 'a' / 'b' / 'cgroup.procs').write_text(str(hidden.pid))\n"
        "print(hidden.pid)\n"
    )
    done, work = await run(executor, ShellTask(argv=(sys.executable, "-c", code, str(root))), {})
    assert done.outcome == "succeeded", written(work, "stderr")
    assert not alive(int(written(work)))


@needs_bwrap
@pytest.mark.parametrize("below", ["/tmp", "/run", "/var/tmp", "/var/run"])
async def test_a_working_directory_does_not_unmask_sockets(executor: ShellExecutor, below: str, outside: Path) -> None:
    try:
        folder = Path(tempfile.mkdtemp(dir=below))
    except OSError:
        pytest.skip(f"{below} is not writable")
    link = outside / "link"
    link.symlink_to(folder)
    upwards = f"{outside}{'/..' * len(outside.parts[1:])}{folder}"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    try:
        for cwd in (str(folder), str(link), upwards):
            done, work = await run(executor, ShellTask(argv=("ls",), cwd=cwd), {"isolation": "bwrap"})
            assert done.outcome == "failed" and done.error is not None
            assert "hidden in the sandbox" in done.error
            assert "socket" not in written(work)
        spec = JobSpec(name="a", task=ShellTask(argv=("ls",), cwd=str(folder)), sandbox=Sandbox(isolation="bwrap"))
        assert [problem.pointer for problem in problems_of(spec)] == ["/task/cwd"]
    finally:
        listening.close()
        shutil.rmtree(folder)


@needs_bwrap
async def test_a_visible_working_directory_is_used(executor: ShellExecutor, outside: Path) -> None:
    script = 'pwd; echo "$PWD"; touch "$TMPDIR/a" && ! touch a'
    done, work = await run(executor, ShellTask((script,), cwd=str(outside), shell=True), {"isolation": "bwrap"})
    assert done.outcome == "succeeded", written(work, "stderr")
    assert written(work).splitlines() == [str(outside)] * 2


@needs_bwrap
async def test_the_socket_of_the_container_engine_is_hidden_wherever_it_is(outside: Path) -> None:
    path = outside / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('connected')"
        task = ShellTask(argv=(PYTHON, "-c", code, str(path)), cwd=str(outside))
        seen = []
        for hidden in ((), (str(path),)):
            async for executor in started(replace(SUPPORT, hidden=hidden)):
                done, work = await run(executor, task, {"isolation": "bwrap", "network": True})
                seen.append((done.outcome, written(work)))
    assert seen == [("succeeded", "connected\n"), ("failed", "")]
