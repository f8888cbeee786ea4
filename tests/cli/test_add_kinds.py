"""`add` for tasks of every kind, windows and parameters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted, job, problem


def sent(server: Scripted, invoke: Invoke, *words: str) -> dict[str, Any]:
    """The definition that a command sends; the server refuses it, which ends the command."""
    server.on("POST", "/api/v1/jobs", problem(409, "name_taken", "taken"))
    result = invoke("add", "x", *words)
    assert result.exit_code == 5, result.stderr
    found = server.last("POST", "/api/v1/jobs").json()
    assert isinstance(found, dict)
    return found


def test_http(server: Scripted, invoke: Invoke) -> None:
    words = ["--http", "https://example.com/a", "--method", "POST", "--header", "X-Team=a", "--body"]
    assert sent(server, invoke, *words, '{"n": 1}')["task"] == {
        "kind": "http",
        "url": "https://example.com/a",
        "method": "POST",
        "headers": {"X-Team": "a"},
        "body": {"n": 1},
    }
    assert sent(server, invoke, "--http", "https://example.com", "--body", "plain")["task"]["body"] == "plain"


def test_container(server: Scripted, invoke: Invoke) -> None:
    words = ["--container", "etl:3", "--network", "--env", "A=1", "--cwd", "/data", "--", "load", "--all"]
    assert sent(server, invoke, *words)["task"] == {
        "kind": "container",
        "image": "etl:3",
        "args": ["load", "--all"],
        "network": True,
        "env": {"A": "1"},
        "workdir": "/data",
    }


def test_function(server: Scripted, invoke: Invoke) -> None:
    words = ["--function", "shop.jobs:pay", "--arg", "currency=EUR", "--arg", "n=5"]
    assert sent(server, invoke, *words)["task"] == {
        "kind": "python",
        "function": "shop.jobs:pay",
        "args": {"currency": "EUR", "n": 5},
    }


def test_parameters(server: Scripted, invoke: Invoke) -> None:
    words = "--param region=eu --param rows:integer=10 --param day --param code:string=007 -- echo {{params.region}}"
    assert sent(server, invoke, *words.split())["params"] == {
        "region": {"default": "eu"},
        "rows": {"type": "integer", "default": 10},
        "day": {},
        "code": {"type": "string", "default": "007"},
    }


def test_windows_and_late_fires(server: Scripted, invoke: Invoke) -> None:
    words = [
        "--cron",
        "@daily",
        "--tz",
        "Europe/Berlin",
        "--start-at",
        "2026-12-01",
        "--end-at",
        "2026-12-31",
        "--",
        "true",
    ]
    assert sent(server, invoke, *words)["schedule"] == {
        "cron": "@daily",
        "timezone": "Europe/Berlin",
        "start_at": "2026-12-01",
        "end_at": "2026-12-31",
    }
    late = sent(server, invoke, "--at", "2026-01-01T00:00", "--run-if-late", "--", "true")["schedule"]
    assert late == {"at": "2026-01-01T00:00", "run_if_late": True}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "Missing command after --, or --http, --container or --function"),
        ("--http https://x --container y", "Use only one of --http and --container."),
        ("--http https://x -- true", "--http takes no command"),
        ("--function a:b --env A=1", "--env does not apply to a task of the kind python."),
        ("--method POST -- true", "--method does not apply to a task of the kind shell."),
        ("--container y --header A=1", "--header does not apply to a task of the kind container."),
        ("--param n:int=1 -- true", "TYPE is one of string, integer"),
        ("--param =1 -- true", "is not NAME[:TYPE][=DEFAULT]"),
        ("--start-at 2026-12-01 -- true", "--start-at needs a schedule"),
    ],
)
def test_what_does_not_fit_together_is_refused(invoke: Invoke, words: str, said: str) -> None:
    result = invoke("add", "x", *words.split())
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_a_job_changes_its_kind(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/jobs/hello", Reply(job()))
    server.on("PATCH", "/api/v1/jobs/hello", problem(409, "conflict", "enough"))
    invoke("jobs", "edit", "hello", "--http", "https://example.com")
    task = server.last("PATCH").json()["task"]
    assert (task["kind"], task["url"], task["argv"]) == ("http", "https://example.com", None)
