from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from mainspring import __version__
from mainspring.cli.main import COMMANDS, main
from tests.support.invoke import Invoke

HEAVY = {
    "asyncio",
    "asyncpg",
    "httpx2",
    "mainspring.domain",
    "mainspring.wire",
    "msgspec",
    "rich",
    "starlette",
}
PROGRAM = str(Path(sys.executable).with_name("mainspring"))


SCRIPT = """
import sys
from mainspring.cli.main import main
try:
    main()
except SystemExit:
    print(*sys.modules)
"""


def modules_for(*words: str) -> set[str]:
    """The modules that are loaded when a command has ended."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_library_but_click() -> None:
    loaded = modules_for("--help")
    assert "click" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("command", ["add", "run", "jobs", "executions"])
def test_help_of_a_command_does_without_http_and_rich(command: str) -> None:
    assert not modules_for(command, "-h") & {"httpx2", "asyncpg", "rich"}


def test_help_is_immediate(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def seconds(*argv: str) -> float:
        began = time.perf_counter()
        subprocess.run(argv, env=env, capture_output=True, check=True)
        return time.perf_counter() - began

    seconds(PROGRAM, "--help")  # compiles
    # Against a bare interpreter in the same moment, so that a busy machine does not decide.
    pairs = [(seconds(PROGRAM, "--help"), seconds(sys.executable, "-c", "import click")) for _ in range(10)]
    assert min(ours / bare for ours, bare in pairs) < 2.5


def test_help_lists_every_command_and_each_can_be_loaded(invoke: Invoke) -> None:
    listed = invoke("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in listed
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert command.name == name
        assert invoke(name, "--help").exit_code == 0


def test_the_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"mainspring {__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("job", "jobs"), ("exectuions", "executions"), ("srve", "serve")])
def test_a_mistyped_command_gets_a_suggestion(invoke: Invoke, typed: str, meant: str) -> None:
    result = invoke(typed)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


def test_an_unknown_command_is_a_usage_error(invoke: Invoke) -> None:
    assert invoke("zzz").exit_code == 2
    assert invoke("--zzz").exit_code == 2
    assert invoke("jobs", "get").exit_code == 2


def test_options_work_before_and_after_the_command(invoke: Invoke) -> None:
    assert invoke("-o", "json", "cron", "next", "@daily").stdout.startswith("{")
    assert invoke("cron", "next", "@daily", "-o", "json").stdout.startswith("{")
    assert invoke("-o", "json", "cron", "next", "@daily", "-o", "table").stdout.endswith("UTC\n")
    assert invoke("cron", "next", "@daily", "-o", "xml").exit_code == 2
