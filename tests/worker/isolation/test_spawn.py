"""Spawning of programs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring.worker.isolation import spawn as module
from mainspring.worker.isolation.spawn import ChildProcess, spawn

pytestmark = pytest.mark.anyio
ENV = {"PATH": os.environ["PATH"]}


async def said(child: ChildProcess) -> tuple[bytes, bytes, int]:
    async def all_of(pipe: module.OutputPipe) -> bytes:
        found = b""
        while part := await pipe.read(10):
            found += part
        return found

    out, err, code = await asyncio.gather(all_of(child.stdout), all_of(child.stderr), child.wait())
    assert child.returncode == code
    return out, err, code


async def sh(script: str, *words: str, **how: Any) -> tuple[bytes, bytes, int]:
    return await said(spawn(["sh", "-c", script, *words], env=ENV, **how))


async def test_output_and_exit_code_come_apart() -> None:
    assert await sh("echo to out; echo to err >&2; exit 3") == (b"to out\n", b"to err\n", 3)
    assert (await sh("kill -9 $$"))[2] == -9
    assert await sh('echo "$0" "$1"', "a b", "c") == (b"a b c\n", b"", 0)


async def test_it_leads_a_group_of_its_own_reads_nothing_and_minds_signals() -> None:
    script = "import os, sys; print(os.getpid() == os.getsid(0), sys.stdin.read() == '')"
    assert await said(spawn([sys.executable, "-S", "-c", script], env=ENV)) == (b"True True\n", b"", 0)
    child = spawn(["sh", "-c", "kill -PIPE $$; echo ignored"], env=ENV)
    assert await said(child) == (b"", b"", -signal.SIGPIPE)


async def test_the_environment_and_its_path_are_what_was_given(tmp_path: Path) -> None:
    assert await said(spawn(["env"], env={"PATH": ENV["PATH"], "A": "1"})) == (
        b"PATH=%b\nA=1\n" % ENV["PATH"].encode(),
        b"",
        0,
    )
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho from here\n")
    with pytest.raises(PermissionError, match="tool"):
        spawn(["tool"], env={"PATH": str(tmp_path)})
    tool.chmod(0o755)
    assert await said(spawn(["tool"], env={"PATH": str(tmp_path)})) == (b"from here\n", b"", 0)
    with pytest.raises(FileNotFoundError, match="tool"):
        spawn(["tool"], env=ENV)


async def test_a_folder_to_work_in(tmp_path: Path) -> None:
    folder = tmp_path / "a folder; with 'signs"
    folder.mkdir()
    (folder / "here.sh").write_text('#!/bin/sh\npwd; echo "$1"\n')
    (folder / "here.sh").chmod(0o755)
    out, _, code = await said(spawn(["./here.sh", "$HOME"], env=ENV, cwd=str(folder)))
    assert (out.decode(), code) == (f"{folder}\n$HOME\n", 0)
    assert (await sh("pwd", cwd=str(folder)))[0].decode().strip() == str(folder)
    for argv, cwd in ((["pwd"], str(tmp_path / "none")), (["./none.sh"], str(folder))):
        with pytest.raises(FileNotFoundError):
            spawn(argv, env=ENV, cwd=cwd)


async def test_nothing_stays_open_when_it_can_not_start() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(FileNotFoundError):
            spawn(["/no/such/program"], env=ENV)
        await sh("true")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_whoever_writes_more_than_is_read_waits() -> None:
    child = spawn(["sh", "-c", "head -c 3000000 /dev/zero; echo done >&2"], env=ENV)
    told = asyncio.create_task(child.stderr.read(100))
    assert len(await child.stdout.read(1000)) == 1000
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(told), 0.2)
    left = 3_000_000 - 1000
    while left:
        left -= len(await child.stdout.read(1_000_000))
    assert await told == b"done\n"
    assert await child.wait() == 0


async def test_without_pidfds_a_thread_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert await sh("exit 7") == (b"", b"", 7)
