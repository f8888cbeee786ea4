"""What users, jobs and servers write cannot control the terminal of who reads it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import wire
from tests.support.invoke import Invoke
from tests.support.scripted_server import EXECUTION_ID, Asked, Reply, Scripted, event, events, execution, problem
from tools.tree import ROOT

ONE = f"/api/v1/executions/{EXECUTION_ID}"
EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[31mred\x1b[0m\u202e\x9b1A\rgone\x08\n"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def chunk(text: str) -> wire.LogChunk:
    return wire.LogChunk(attempt=1, seq=1, stream="stdout", text=text)


def log_of(server: Scripted, text: str) -> None:
    server.on("GET", ONE, Reply(execution()))

    def page(asked: Asked) -> Reply:
        first = not asked.query.get("place")
        return Reply(wire.Logs(chunks=[chunk(text)] if first else [], place="1.1", complete=True))

    server.on("GET", ONE + "/logs", page)


def test_logs_print_no_controls(server: Scripted, invoke: Invoke) -> None:
    log_of(server, EVIL)
    shown = invoke("executions", "logs", str(EXECUTION_ID)).stdout
    assert not CONTROLS.search(shown)
    assert "\\x1b]52;c;" in shown and "red" in shown and "\\rgone" in shown


def test_followed_logs_print_no_controls(server: Scripted, invoke: Invoke) -> None:
    parts = [event("chunk", chunk(EVIL[at : at + 3]), str(at)) for at in range(0, len(EVIL), 3)]
    server.on("GET", ONE + "/logs", events(*parts, event("end", {})))
    assert not CONTROLS.search(invoke("executions", "logs", "-f", str(EXECUTION_ID)).stdout)


def test_raw_prints_every_byte(server: Scripted, invoke: Invoke) -> None:
    log_of(server, EVIL)
    result = invoke("executions", "logs", "--raw", str(EXECUTION_ID))
    assert result.stdout_bytes == EVIL.encode()
    assert invoke("executions", "logs", "--raw", "-o", "json", str(EXECUTION_ID)).exit_code == 2


def test_json_of_a_log_has_no_controls_and_the_same_value(server: Scripted, invoke: Invoke) -> None:
    log_of(server, EVIL)
    line = invoke("executions", "logs", "-o", "jsonl", str(EXECUTION_ID)).stdout
    assert not CONTROLS.search(line.strip())
    assert json.loads(line)["text"] == EVIL


@pytest.mark.parametrize("words", [("executions", "get"), ("executions", "wait"), ("-o", "wide", "executions", "list")])
def test_no_field_of_an_execution_controls_the_terminal(
    server: Scripted, invoke: Invoke, words: tuple[str, ...]
) -> None:
    made = execution(
        state="failed", job=f"job{EVIL}", error=EVIL, reason=EVIL, worker=EVIL, created_by=EVIL, queue=EVIL,
        params={"a": EVIL}, result={"b": EVIL},
    )  # fmt: skip
    server.on("GET", ONE, Reply(made))
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[made])))
    listing = words[-1] == "list"
    result = invoke(*words, *(() if listing else (str(EXECUTION_ID),)))
    assert "job" in result.stdout and not CONTROLS.search(result.stdout + result.stderr)


def test_an_error_of_a_server_controls_nothing(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", ONE, problem(404, "not_found", f"there is no {EVIL}"))
    result = invoke("executions", "get", str(EXECUTION_ID))
    assert result.exit_code == 3 and not CONTROLS.search(result.stderr)


def test_a_real_terminal_gets_colours_and_nothing_else(server: Scripted, tmp_path: Path) -> None:
    log_of(server, EVIL)
    ours, theirs = pty.openpty()
    env = {
        **os.environ,
        "MAINSPRING_URL": server.url,
        "MAINSPRING_TOKEN": "secret",
        "TERM": "xterm",
        "HOME": str(tmp_path),
    }
    words = [sys.executable, "-m", "mainspring.cli.main", "executions", "logs", str(EXECUTION_ID)]
    process = subprocess.Popen(words, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env, cwd=tmp_path)
    os.close(theirs)
    got = b""
    try:
        while piece := os.read(ours, 65536):
            got += piece
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0
    text = got.decode().replace("\r\n", "\n")
    assert "\x1b[31mred\x1b[0m" in text
    assert not CONTROLS.search(re.sub("\x1b\\[[0-9;]*m", "", text))


def test_all_output_of_commands_is_made_safe() -> None:
    """`click.echo` is used where it is wrapped, and where the cursor is moved: by the progress line and the screen."""
    folder = ROOT / "src" / "mainspring" / "cli"
    used = {str(f.relative_to(folder)) for f in folder.rglob("*.py") if "click.echo(" in f.read_text(encoding="utf-8")}
    assert used == {"output.py", "progress.py", "screen.py"}
    printing = {
        f.name
        for f in folder.rglob("*.py")
        if re.search(r"^\s*print\(|click\.secho\(", f.read_text(encoding="utf-8"), re.M)
    }
    assert printing == set()
