"""`executions export`: pages are written as they come, as JSON lines or CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from mainspring import wire
from mainspring.cli.export import COLUMNS, cells
from mainspring.codec import encode
from tests.support.invoke import Invoke
from tests.support.scripted_server import Asked, Reply, Scripted, execution, problem

PATH = "/api/v1/executions"
TOTAL = 1234


def page(asked: Asked) -> Reply:
    """Executions by number, newest first; the cursor is the number of the last one."""
    limit = int(asked.query["limit"][0])
    first = int(asked.query.get("cursor", ["0"])[0])
    numbers = range(first, min(TOTAL, first + limit))
    items = [execution(execution_id=UUID(int=TOTAL - n)) for n in numbers]
    return Reply(wire.Page(items=items, next_cursor=str(numbers.stop) if numbers.stop < TOTAL else None))


def test_every_page_is_written_in_order(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", PATH, page)
    result = invoke("executions", "export")
    found = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert [UUID(each["execution_id"]).int for each in found] == [*range(TOTAL, 0, -1)]
    assert found[0] == msgspec.json.decode(encode(execution(execution_id=UUID(int=TOTAL))))
    assert [asked.query["limit"] for asked in server.asked] == [["500"]] * 3


def test_a_limit_ends_it_early(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", PATH, page)
    assert len(invoke("executions", "export", "--limit", "7").stdout.splitlines()) == 7
    assert server.last().query["limit"] == ["7"]


def test_filters_are_those_of_the_list(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", PATH, Reply(wire.Page(items=[])))
    invoke("executions", "export", "--job", "a", "--state", "failed", "--state", "lost")
    assert (server.last().query["job"], server.last().query["state"]) == (["a"], ["failed", "lost"])
    invoke("executions", "export", "since:7d", "--job", "a", "--state", "failed")
    assert server.last().query["filter"] == ["since:7d job:a state:failed"]


def test_csv_has_a_header_and_no_formulas(server: Scripted, invoke: Invoke, tmp_path: Path) -> None:
    risky = execution(job="=cmd()", reason="-1+1", error='a,"b"\nc', params={"n": [1]}, exit_code=-9)
    server.on("GET", PATH, Reply(wire.Page(items=[risky])))
    target = tmp_path / "out.csv"
    result = invoke("executions", "export", "--format", "csv", "--to", str(target))
    assert (result.stdout, result.stderr) == ("", f"1 execution written to {target}\n")
    header, row = csv.reader(io.StringIO(target.read_text()))
    assert header == list(COLUMNS)
    found = dict(zip(header, row, strict=True))
    assert (found["job"], found["reason"], found["error"]) == ("'=cmd()", "'-1+1", 'a,"b"\nc')
    assert (found["params"], found["exit_code"], found["worker"]) == ('{"n":[1]}', "-9", "local")


def test_a_failure_leaves_no_file(server: Scripted, invoke: Invoke, tmp_path: Path) -> None:
    server.on("GET", PATH, [page(Asked("GET", PATH, {"limit": ["500"]}, {}, b"")), problem(503, "unavailable", "away")])
    result = invoke("executions", "export", "--to", str(tmp_path / "out"))
    assert result.exit_code == 7
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_is_a_field_of_the_api(column: str) -> None:
    assert column in wire.Execution.__struct_fields__
    assert len(cells(execution())) == len(COLUMNS)
