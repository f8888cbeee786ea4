"""Functions that try to have the worker upload or delete a folder that is not theirs."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from mainspring.worker.isolation.folders import open_below
from mainspring.worker.isolation.sandbox import detect_sandbox_support
from mainspring.worker.python.folders import RunnerFolders
from tests.conftest import Cluster
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

needs_bwrap = pytest.mark.skipif(detect_sandbox_support().bwrap is None, reason="bubblewrap is not usable here")

FUNCTIONS = """
import os
from typing import Any
import msgspec
import mainspring as ms
from mainspring.sdk.context import current

class Forged(msgspec.Struct, array_like=True, tag="artifacts"):
    number: int
    folder: str

def store() -> None:
    ms.context().artifact("sub/kept.txt", "kept")

def name_another(victim: str) -> None:
    call = current.get()
    call._send(Forged(call.number, victim))

def link(victim: str) -> None:
    folder = current.get().artifact_folder()
    os.rmdir(folder)
    os.symlink(victim, folder)

def link_parent(victim: str) -> None:
    call = current.get()
    parent = os.path.dirname(call.artifact_folder())
    os.makedirs(os.path.join(victim, str(call.number)))
    open(os.path.join(victim, str(call.number), "precious"), "w").close()
    os.rename(parent, parent + ".away")
    os.symlink(victim, parent)

def link_below(victim: str) -> None:
    folder = current.get().artifact_folder()
    os.symlink(victim, os.path.join(folder, "sub"))
"""


@pytest.mark.parametrize("function", ["name_another", "link", "link_parent", "link_below"])
async def test_a_function_cannot_name_a_folder_of_others(cluster: Cluster, tmp_path: Path, function: str) -> None:
    (tmp_path / "forger.py").write_text(FUNCTIONS)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("precious")
    task = {"kind": "python", "function": f"forger:{function}", "args": {"victim": str(victim)}}
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token, "-m", "forger"):
        job = await client.create_job({"name": f"job-{uuid4()}", "task": task, "retries": {"max": 0}})
        execution = await client.trigger(job.name)
        done = await client.wait(execution.execution_id, timeout_s=40)
        assert done.state == ("failed" if function == "link_below" else "succeeded")
        assert (await client.artifacts(done.execution_id)).items == []
        files = {file.name: file.read_bytes() for file in victim.rglob("*") if file.is_file()}
        assert files == {"precious": b"precious"} or function == "link_parent"
        assert len(list(victim.rglob("precious"))) == (2 if function == "link_parent" else 1)


@pytest.mark.parametrize("sandbox", [None, {}, pytest.param({"isolation": "bwrap"}, marks=needs_bwrap)])
async def test_artifacts_of_functions_are_stored_also_in_a_sandbox(
    cluster: Cluster, tmp_path: Path, sandbox: dict[str, str] | None
) -> None:
    (tmp_path / "forger.py").write_text(FUNCTIONS)
    spec = {"name": f"job-{uuid4()}", "task": {"kind": "python", "function": "forger:store"}, "sandbox": sandbox}
    async with cluster.client() as client, worker(tmp_path, cluster.url, cluster.worker_token, "-m", "forger"):
        job = await client.create_job(spec)
        execution = await client.trigger(job.name)
        done = await client.wait(execution.execution_id, timeout_s=60)
        assert done.state == "succeeded", done.error
        assert [file.name for file in (await client.artifacts(done.execution_id)).items] == ["sub/kept.txt"]


def test_a_folder_is_taken_through_its_own_descriptor(tmp_path: Path) -> None:
    folders = RunnerFolders()
    runner = folders.new_runner()
    (runner.path / "1").mkdir()
    (runner.path / "1" / "a").write_text("mine")
    away = runner.path.rename(folders.root / "away")
    (tmp_path / "1").mkdir()
    runner.path.symlink_to(tmp_path)
    taken = runner.take(1)
    assert taken is not None and (taken / "a").read_text() == "mine"
    assert (tmp_path / "1").exists() and not (away / "1").exists()
    assert runner.take(2) is None
    folders.remove()


@pytest.mark.parametrize("name", ["link", "folder/link", "linked/file", "folder"])
def test_no_link_is_followed_below_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    (tmp_path / "link").symlink_to("folder/file")
    (tmp_path / "folder" / "link").symlink_to("file")
    (tmp_path / "linked").symlink_to("folder")
    with open_below(tmp_path, "folder/file") as file:
        assert file.read() == b"x"
    with pytest.raises(OSError):
        open_below(tmp_path, name)
