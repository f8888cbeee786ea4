from __future__ import annotations

import socket

import pytest

from mainspring.cli.failure import EXIT_CODES, exit_code, lines, state_code
from mainspring.domain import errors
from mainspring.domain.execution import FINAL, State
from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted, problem


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, 3), (401, 4), (403, 4), (409, 5), (412, 5), (422, 6), (413, 6), (503, 7), (500, 1)],
)
def test_what_the_server_refuses_decides_the_exit_code(
    server: Scripted, invoke: Invoke, status: int, code: int
) -> None:
    server.on("GET", "/api/v1/jobs/hello", problem(status, "some_code", "it can't be done"))
    result = invoke("jobs", "get", "hello")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "Error: it can't be done\n"


def test_every_problem_is_told_with_its_place_and_hint(server: Scripted, invoke: Invoke) -> None:
    found = [
        {"pointer": "/queue", "message": "'A' is not a queue name", "hint": "lower case letters"},
        {"pointer": "/schedule/cron", "message": "hour is 0-23", "hint": ""},
    ]
    server.on("POST", "/api/v1/jobs", problem(422, "invalid", "the job does not fit", found))
    result = invoke("add", "x", "--queue", "A", "--", "true")
    assert result.exit_code == 6
    assert result.stderr.splitlines() == [
        "Error: the job does not fit",
        "  /queue: 'A' is not a queue name",
        "  → lower case letters",
        "  /schedule/cron: hour is 0-23",
    ]


def test_a_single_problem_is_not_told_twice() -> None:
    error = errors.invalid("/name", "'!' is not a job name", hint="use letters")
    assert lines(error) == ["Error: '!' is not a job name", "  /name", "  → use letters"]


def test_without_a_server_the_message_says_what_to_start(invoke: Invoke) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = invoke("--url", url, "jobs", "list")
    assert (result.exit_code, result.stdout) == (7, "")
    assert f"no response from {url} (from --url)" in result.stderr
    assert "mainspring dev" in result.stderr


def test_without_a_valid_token_the_message_says_how_to_give_one(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/jobs", problem(401, "unauthenticated", "no valid token"))
    result = invoke("jobs", "list", "--token", "other")
    assert result.exit_code == 4
    assert "MAINSPRING_TOKEN" in result.stderr
    assert server.last().headers["authorization"] == "Bearer other"


def test_another_server_is_an_error_of_its_own(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/jobs", Reply(b"hello", content_type="text/plain"))
    result = invoke("jobs", "list")
    assert result.exit_code == 1
    assert "is it a Mainspring server" in result.stderr


def test_a_defect_of_ours_is_not_hidden(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mainspring.cli.cron.fires_of", fail)
    with pytest.raises(ZeroDivisionError):
        invoke("cron", "next", "@daily")


def test_exit_codes_of_final_states() -> None:
    codes: dict[State, int] = {state: state_code(state) for state in FINAL}
    assert codes == {
        "succeeded": 0,
        "failed": 10,
        "lost": 10,
        "skipped": 10,
        "cancelled": 11,
        "timed_out": 12,
    }


def test_a_wait_that_timed_out_has_a_code_of_its_own() -> None:
    assert exit_code(errors.MainspringError("still running", code="wait_timed_out")) == 8


def test_every_exit_code_is_documented() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MainspringError)
    ]
    assert {exit_code(kind("x")) for kind in kinds} <= EXIT_CODES.keys()
    assert {state_code(state) for state in FINAL} <= EXIT_CODES.keys()
