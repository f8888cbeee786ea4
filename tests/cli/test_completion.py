"""Completion in real shells, with names from a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import wire
from tests.support.invoke import Invoke
from tests.support.scripted_server import EXECUTION_ID, Reply, Scripted, execution, job

PROGRAM = Path(sys.executable).with_name("mainspring")
SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_for_each_shell(invoke: Invoke, shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert f"_MAINSPRING_COMPLETE={shell}_complete" in result.stdout
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True)


def complete(server: Scripted | None, folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "_MAINSPRING_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("mainspring", *words)), "COMP_CWORD": str(len(words)),
        "MAINSPRING_URL": "http://127.0.0.1:1" if server is None else server.url, "MAINSPRING_TOKEN": "secret",
    }  # fmt: skip
    done = subprocess.run([PROGRAM], env=env, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_and_options_complete(tmp_path: Path) -> None:
    assert complete(None, tmp_path, "dead") == ["dead-letters"]
    assert "requeue" in complete(None, tmp_path, "executions", "")
    assert complete(None, tmp_path, "add", "--run-if") == ["--run-if-late"]


def test_names_come_from_the_server(server: Scripted, tmp_path: Path) -> None:
    server.on("GET", "/api/v1/jobs", Reply(wire.Page(items=[job(name="hello"), job(name="help")])))
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[execution()])))
    assert complete(server, tmp_path, "run", "he") == ["hello", "help"]
    assert server.last().query["prefix"] == ["he"]
    assert complete(server, tmp_path, "jobs", "get", "hell") == ["hello"]
    assert complete(server, tmp_path, "exec", "hell") == ["hello"]
    assert complete(server, tmp_path, "executions", "list", "--job", "hell") == ["hello"]
    assert complete(server, tmp_path, "executions", "get", "") == ["@last", str(EXECUTION_ID)]
    assert complete(server, tmp_path, "logs", "@") == ["@last"]


def test_without_a_server_there_are_no_names_and_no_error(tmp_path: Path) -> None:
    assert complete(None, tmp_path, "run", "he") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_name(server: Scripted, tmp_path: Path) -> None:
    server.on("GET", "/api/v1/jobs", Reply(wire.Page(items=[job(name="hello")])))
    text = (
        'eval "$(mainspring completion bash)"; COMP_WORDS=(mainspring run he); COMP_CWORD=2; '
        'COMP_LINE="mainspring run he"; '
        'COMP_POINT=${#COMP_LINE}; _mainspring_completion mainspring he run; echo "${COMPREPLY[@]}"'
    )
    env = {
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "MAINSPRING_URL": server.url,
        "MAINSPRING_TOKEN": "secret",
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", text], env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "hello\n", done.stderr
