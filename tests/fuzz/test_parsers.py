"""The cost of every parser of user input grows at most linearly, up to the largest input that it accepts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from mainspring import codec
from mainspring.api.app import endpoints
from mainspring.domain import job, json_schema, template
from mainspring.domain.dead_letter import parse_rate
from mainspring.domain.duration import parse_duration
from mainspring.domain.filter import execution_filter, job_filter
from mainspring.domain.fingerprint import fingerprint
from mainspring.domain.job import JobSpec
from mainspring.domain.limit import key_problems, resolve_key
from mainspring.domain.placement.resources import parse_amount
from mainspring.domain.suggestion import closest
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.importers import plan as importer_plan
from mainspring.importers.plan import ReadOptions, SourceFile
from mainspring.importers.readers import SOURCES
from mainspring.manifest import read_documents
from mainspring.web.draw.diff import diff_lines
from mainspring.web.draw.terminal_output import coloured
from mainspring.web.endpoint import MAX_FORM_BYTES, form_fields
from mainspring.web.forms.yaml_reading import is_short
from tests.fuzz.inputs import Bodies, any_json, texts
from tests.support.growth import LIMIT_S, LONG_SECONDS, finding, memory_finding
from tests.support.seeds import SEED

BODY = codec.MAX_BODY
RANDOM = 10
SHORT_BODY = 200_000
IMPORTED = importer_plan.MAX_CHARS


@dataclass(frozen=True, slots=True)
class TextParser:
    name: str
    call: Callable[[str], object]
    cap: int
    limit_s: float = LIMIT_S

    def __str__(self) -> str:
        return self.name


SCHEMA = {
    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
    "properties": {"text": {"enum": [f"x{n}" for n in range(1000)]}},
    "additionalProperties": {"$ref": "#/$defs/a"},
}
IMPORT_S = 2.0
"""Files are imported by the command line, on the machine of their owner: no event loop waits for it."""
IMPORT_OPTIONS = ReadOptions(now_ms=1_800_000_000_000)


def imported(source: str, suffix: str = "") -> Callable[[str], object]:
    """The reader of a source, with one file of the text; systemd needs a suffix to know a timer."""
    read = SOURCES[source].reader()
    return lambda text: read([SourceFile(f"file{suffix}", text)], IMPORT_OPTIONS)


TEXT_PARSERS = [
    *(
        TextParser(f"import {source}", imported(source), IMPORTED, IMPORT_S)
        for source in SOURCES
        if source != "systemd"
    ),
    TextParser("import systemd", imported("systemd", ".timer"), IMPORTED, IMPORT_S),
    TextParser("import crontab line", lambda text: imported("crontab")(f"0 0 * * * {text}"), IMPORTED, IMPORT_S),
    TextParser("import crontab schedule", lambda text: imported("crontab")(f"{text} * * * * x"), IMPORTED, IMPORT_S),
    TextParser(
        "import systemd calendar", lambda text: imported("systemd", ".timer")(f"[Timer]\nOnCalendar={text}"), IMPORTED
    ),
    TextParser("import quartz line", lambda text: imported("quartz")(f"a = {text} -- x"), IMPORTED, IMPORT_S),
    TextParser(
        "import dag",
        lambda text: imported("airflow")(f'with DAG("a", schedule="{text}"):\n    x\n'),
        IMPORTED,
        IMPORT_S,
    ),
    TextParser("duration", parse_duration, BODY),
    TextParser("amount", lambda text: parse_amount("memory", text), BODY),
    TextParser("rate", parse_rate, BODY),
    TextParser("execution filter", lambda text: execution_filter(text, 0), BODY),
    TextParser("job filter", job_filter, 1_000),
    TextParser("template", template.unknown_names, BODY),
    TextParser("template substitution", lambda text: template.substituted(text, lambda _: ""), BODY),
    TextParser("limit key", lambda text: (key_problems("", text), resolve_key(text, job="x", params={})), 200),
    TextParser("condition", condition.condition_problem, condition.MOST_LENGTH),
    TextParser("condition reads", condition.steps_named, BODY),
    TextParser("error fingerprint", lambda text: fingerprint(text, state="failed"), BODY),
    TextParser("log output", coloured, 96_000),
    TextParser("yaml", lambda text: read_documents(text) if is_short(text) else None, BODY),
    TextParser("form", lambda text: form_fields(text.encode()), MAX_FORM_BYTES),
    TextParser("json", lambda text: codec.decode(text.encode(), Any), BODY),
    TextParser("suggestion", lambda text: closest(text, [f"{text[:90]}{n}" for n in range(200)]), BODY),
    TextParser("difference", lambda text: diff_lines(text.split(" "), text[::-1].split("a")), BODY),
]


@pytest.mark.parametrize("parser", TEXT_PARSERS, ids=str)
def test_text(parser: TextParser) -> None:
    rng = random.Random(f"{SEED}{parser}")
    cap = min(parser.cap, SHORT_BODY)
    for number, pump in enumerate(texts(rng, RANDOM)):
        wrong = finding(parser.call, pump, cap=cap, limit_s=parser.limit_s)
        assert not wrong, f"{parser} of {pump}: {wrong}"
        if number % 4 == 0:
            wrong = memory_finding(parser.call, pump(cap), cap)
            assert not wrong, f"{parser} of {pump}: {wrong}"


def checked(body: bytes, type_: Any, limit: int) -> None:
    """What an endpoint does with a body before it asks the database."""
    value = codec.decode(body, type_, limit=limit)
    if isinstance(value, JobSpec):
        job.check(value)
    elif isinstance(value, WorkflowSpec):
        compile_workflow(value)


BODIES = {e.path + " " + e.method: (e.body, e.limit) for e in endpoints() if e.body is not None}


def body_findings(name: str, rng: random.Random, count: int, size: int) -> list[str]:
    """What is wrong with bodies of one endpoint that have one large part each, in some of its places."""
    type_, limit = BODIES[name]
    makes = list(Bodies(type_).large().items())
    found = []
    for place, make in rng.sample(makes, min(count, len(makes))):

        def encoded(n: int, make: Callable[[int], Any] = make) -> bytes:
            return msgspec.json.encode(make(n))

        def call(body: bytes) -> None:
            checked(body, type_, limit)

        if wrong := finding(call, encoded, cap=size) or memory_finding(call, body := encoded(size), len(body)):
            found.append(f"{name}{place}: {wrong}")
    return found


@pytest.mark.parametrize("name", sorted(BODIES))
def test_body(name: str) -> None:
    assert body_findings(name, random.Random(f"{SEED}{name}"), 12, SHORT_BODY) == []


@pytest.mark.parametrize("name", any_json())
def test_settings_of_a_plugin(name: str) -> None:
    make = any_json()[name]
    for cap in (100_000,):
        assert not finding(
            lambda value: list(json_schema.problems({"text": value, "x": value}, SCHEMA, "")), make, cap=cap
        )


@pytest.mark.parametrize("shape", ["chain", "wide", "cycle", "reads", "unknown", "names"])
def test_workflow(shape: str) -> None:
    """Large workflows are compiled beside the event loop: their time is linear, not short."""
    noop = {"task": {"kind": "noop"}}
    echo = {"kind": "shell", "argv": ["echo", "{{steps.s0.result}}"]}

    def make(size: int) -> WorkflowSpec:
        count = max(2, size)
        steps: dict[str, Any] = {"s0": noop}
        for n in range(1, count):
            before = f"s{n - 1}"
            steps[f"s{n}"] = {
                "chain": {**noop, "needs": [before]},
                "wide": {**noop, "needs": ["s0"]},
                "cycle": {**noop, "needs": [before if n > 1 else f"s{count - 1}"]},
                "reads": {"task": echo, "needs": [before]},
                "unknown": {**noop, "needs": [f"x{n}"]},
                "names": {**noop, "when": f"steps.s{n - 1}.result == '{n}'", "needs": [before]},
            }[shape]
        return msgspec.convert({"name": "w", "steps": steps}, WorkflowSpec)

    assert not finding(compile_workflow, make, cap=4_000, limit_s=4.0)


@pytest.mark.skipif(not LONG_SECONDS, reason="the long form: make fuzz")
def test_random_inputs_for_long() -> None:
    rng, until = random.Random(SEED), time.monotonic() + LONG_SECONDS / 3
    while time.monotonic() < until:
        assert body_findings(rng.choice(sorted(BODIES)), rng, 1, rng.choice((50_000, SHORT_BODY, 900_000))) == []
        parser = rng.choice(TEXT_PARSERS)
        for pump in list(texts(rng, 4))[-4:]:
            wrong = finding(parser.call, pump, cap=parser.cap, limit_s=parser.limit_s)
            assert not wrong, f"{parser} of {pump}: {wrong}"


def test_a_quadratic_parser_is_found() -> None:
    def quadratic(text: str) -> int:
        return sum(text.count("a", 0, n) for n in range(0, len(text), 7))

    assert finding(quadratic, texts(random.Random(0), 0).__next__(), cap=200_000)


def test_growing_memory_is_found() -> None:
    assert memory_finding(lambda text: [text * 3 for _ in range(400)], "x" * 100_000, 100_000)
