"""Every table fits a terminal of 120 columns, with values as long as in practice."""

from __future__ import annotations

import importlib
import io
import pkgutil
import types
import typing
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import msgspec
import pytest
from rich.console import Console

import mainspring.cli
from mainspring import wire
from mainspring.cli import output
from mainspring.cli.output import TableLayout
from mainspring.domain.job import JobSpec
from mainspring.domain.queue import QueueSettings
from tests.support.scripted_server import job

WIDTH = 120
NAME = "nightly-report-europe-west"
SPEC = msgspec.convert(
    {
        "name": NAME,
        "task": {"kind": "shell", "argv": ["/usr/local/bin/report", "--region", "europe-west", "--full"]},
        "schedule": {"cron": "30 2 * * MON-FRI", "timezone": "America/Argentina/Buenos_Aires"},
    },
    JobSpec,
)


def example(type_: Any, field: str = "") -> Any:
    """A value of a type, as long as such values are in practice."""
    if type_ is JobSpec:
        return SPEC
    if type_ is QueueSettings:
        return QueueSettings(cap=1000)
    origin, args = get_origin(type_), get_args(type_)
    if origin is typing.Annotated:
        return example(args[0], field)
    if origin is Literal:
        return max(args, key=lambda arg: len(str(arg)))
    if origin in (typing.Union, types.UnionType):
        return example(next(arg for arg in args if arg is not type(None)), field)
    if origin is list:
        return [example(args[0], field)] * 2
    if origin is dict:
        return {"team": example(args[1], field)}
    if origin is tuple:
        return tuple(example(arg, field) for arg in args if arg is not Ellipsis)
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_(**{f.name: example(f.type, f.name) for f in msgspec.structs.fields(type_)})
    values: dict[Any, Any] = {
        int: 12_345, float: 1234.5, bool: True, datetime: datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC),
        UUID: UUID("0193a4c1-2b4d-8a1f-a000-000000000001"), bytes: b"x",
    }  # fmt: skip
    long = ("error", "reason", "description", "excerpt", "message", "user_agent", "last_error", "what")
    return values.get(type_, "no space left on device: /var/lib/reports/europe-west" if field in long else NAME)


def layouts() -> dict[str, tuple[TableLayout[Any], Any]]:
    """Every layout of the program, with an item of its type."""
    found: dict[str, tuple[TableLayout[Any], Any]] = {}
    for module in pkgutil.walk_packages(mainspring.cli.__path__, "mainspring.cli."):
        if module.name.endswith(("__main__", ".enter_job_view")):
            continue
        loaded = importlib.import_module(module.name)
        hints = typing.get_type_hints(loaded, include_extras=True) if hasattr(loaded, "__annotations__") else {}
        for name, hint in hints.items():
            if get_origin(hint) is TableLayout and isinstance(getattr(loaded, name, None), TableLayout):
                found[f"{loaded.__name__}.{name}"] = (getattr(loaded, name), get_args(hint)[0])
    return found


LAYOUTS = layouts()


def item_of(type_: Any) -> Any:
    if type_ is wire.Job:
        last = example(wire.LastExecution)
        return job(msgspec.to_builtins(SPEC), schedule_description="at 02:30 on Monday to Friday", last=[last] * 20)
    return example(type_)


def test_all_layouts_are_found() -> None:
    assert len(LAYOUTS) >= 20


@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_is_cut_at_120_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, type_ = LAYOUTS[name]
    items = [item_of(type_)] * 3
    columns = [column for column in layout.columns if not column.wide]
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda width: Console(width=width, file=screen))
    output._print_rich(items, output._fitting(items, columns, WIDTH), WIDTH)
    text = screen.getvalue()
    assert "…" not in text, text
    assert max(map(output.display_width, text.splitlines())) <= WIDTH
    titles = text.splitlines()[0]
    assert all(column.title in titles for column in columns if not column.optional)
