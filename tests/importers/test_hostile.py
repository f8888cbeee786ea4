"""Sources are hostile: nothing is executed, sizes are bounded, and errors say where."""

from __future__ import annotations

import json

import pytest

from mainspring.domain.errors import Invalid
from mainspring.importers.plan import MAX_CHARS, MAX_ENTRIES, SourceFile
from mainspring.importers.readers import SOURCES
from tests.support.imports import proved, read

EXECUTED = "import pathlib\npathlib.Path('{marker}').write_text('x')\n"


@pytest.mark.parametrize("source", ["celery", "apscheduler", "airflow"])
def test_python_is_never_executed(source: str, tmp_path) -> None:
    marker = tmp_path / "marker"
    read(source, EXECUTED.format(marker=marker))
    assert not marker.exists()


@pytest.mark.parametrize("source", SOURCES)
def test_a_large_file_is_refused(source: str) -> None:
    with pytest.raises(Invalid, match="limit"):
        read(source, SourceFile("big.timer", "#" * (MAX_CHARS + 1)))


def test_too_many_entries_are_refused() -> None:
    with pytest.raises(Invalid, match=f"more than {MAX_ENTRIES:,} entries"):
        read("crontab", "* * * * * x\n" * (MAX_ENTRIES + 1))


@pytest.mark.parametrize("source", ["celery", "apscheduler", "eventbridge", "cloud-scheduler"])
def test_deep_json_is_refused(source: str) -> None:
    with pytest.raises(Invalid, match="nested deeper"):
        read(source, "[" * 100_000)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, "a: &a [*a]", "a: &b 1\nc: *b"])
def test_hostile_yaml_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"source:\d+: "):
        read("k8s", text)


def test_constants_cannot_grow() -> None:
    lines = ["a0 = ['x'] * 1", "b0 = ['x']"]
    lines += [f"b{n} = [b{n - 1}, b{n - 1}, b{n - 1}, b{n - 1}]" for n in range(1, 19)]
    lines.append("app.conf.beat_schedule = {'x': {'task': 'a.b', 'schedule': 60, 'kwargs': {'v': b18}}}")
    plan = read("celery", "\n".join(lines))
    assert [one.message for one in plan.unsupported] == ["the arguments are computed by the program"]


def test_xml_entities_are_refused() -> None:
    text = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    with pytest.raises(Invalid, match="document type"):
        read("quartz", text)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b\nc", "\x1b[31mred", "x" * 5000, "é", ""])
def test_names_are_made_safe(name: str) -> None:
    text = json.dumps({"jobs": [{"name": name, "schedule": "0 0 * * *", "httpTarget": {"uri": "https://x.example"}}]})
    (found,) = proved(read("cloud-scheduler", text))
    assert found.replace("-", "").replace(".", "").replace("_", "").isalnum() and len(found) <= 128


@pytest.mark.parametrize(
    "line",
    [
        "* * * * * " + "x" * 200_000,
        "*,*,*,*" * 1000 + " * * * * x",
        "0 0 * * * a\0b",
        "99999999999999999999 * * * * x",
        "*/0 * * * * x",
        "CRON_TZ=../../etc/passwd\n0 0 * * * x",
        "MAINSPRING_TOKEN=x\n0 0 * * * x",
    ],
)
def test_hostile_crontab_lines_become_findings(line: str) -> None:
    plan = read("crontab", line + "\n")
    assert proved(plan) == {} and len(plan.unsupported) == 1
    assert len(str(plan.unsupported[0])) < 1000
