"""The table of bounds of definitions and requests, between its markers in `docs/reference/limits.md`, from the code."""

from __future__ import annotations

import re
from pathlib import Path

from mainspring import codec, killable, manifest
from mainspring.domain import bounds, duration, errors, filter, job, json_schema, task, template
from mainspring.domain.placement import functions
from mainspring.domain.workflow import condition, spec
from mainspring.runs import expressions, release
from mainspring.views import logs
from mainspring.web import endpoint
from mainspring.web.forms import yaml_reading
from tools.reference.markdown import table
from tools.tree import ROOT

BEGIN, END = "<!-- bounds: begin -->", "<!-- bounds: end -->"
_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


def bounds_page() -> Path:
    return ROOT / "docs" / "reference" / "limits.md"


def page() -> str:
    """That page with the current table."""
    block = "\n".join([BEGIN, "", table(("Limit", "Value"), _rows()), "", END])
    return _BLOCK.sub(lambda _: block, bounds_page().read_text(encoding="utf-8"))


def _rows() -> list[tuple[str, str]]:
    cel, yaml = expressions.LIMITS, yaml_reading.LIMITS
    return [
        ("JSON values in a request body", f"{codec.MAX_BODY // codec.BYTES_PER_VALUE:,} per MB of the body's limit"),
        ("integer", f"64 bits: at most {codec.MAX_INTEGER:,}"),
        ("name, or key of a mapping", f"{bounds.MAX_NAME_CHARS:,} characters"),
        ("message, path, description of a step", f"{bounds.MAX_LINE_CHARS:,} characters"),
        ("labels, headers, environment variables, declared parameters", f"{bounds.MAX_ENTRIES:,} each"),
        ("parameters, arguments, settings, metadata", f"{bounds.MAX_VALUES:,} each"),
        ("resources", f"{bounds.MAX_SMALL_LIST:,}"),
        ("labels and resources of a job", f"{job.MAX_DEMAND_BYTES:,} bytes as JSON"),
        ("duration", f"{duration.MAX_CHARS:,} characters, 1,000 years"),
        ("filter of a list", f"{filter.MAX_FILTER:,} characters"),
        ("problems that an error lists", f"{errors.MAX_PROBLEMS:,}, each of {errors.MAX_MESSAGE_CHARS:,} characters"),
        ("text that templates insert into one task", f"{template.MAX_INSERTED_CHARS:,} characters"),
        ("text that templates insert into steps that start together", f"{release.MAX_INSERTED_CHARS:,} characters"),
        ("needs of a step", f"{spec.MOST_NEEDS:,}"),
        ("needs of a job in a manifest", f"{bounds.MAX_ENTRIES:,}"),
        ("needs of all steps of a workflow", f"{spec.MOST_EDGES:,}"),
        ("templates of all steps of a workflow", f"{spec.MOST_TEMPLATES:,}"),
        (
            "condition",
            f"{condition.MOST_LENGTH:,} characters, {condition.MOST_DEPTH} levels, {condition.MOST_LOOPS} loops",
        ),
        ("different conditions of a workflow", f"{spec.MOST_EXPRESSION_CHARS:,} characters together"),
        ("evaluation of a condition", f"{cel.cpu_s:g} s of CPU time, {cel.memory_bytes // 10**9} GB of memory"),
        ("YAML in the web UI", f"{yaml.cpu_s:g} s of CPU time"),
        ("values that YAML aliases repeat", f"{manifest.MOST_GROWTH} times the text, and {manifest.MOST_REPEATED:,}"),
        ("schema of a plug-in", f"{json_schema.MOST_SCHEMA_PARTS:,} parts, {json_schema.MOST_DEPTH} levels"),
        ("checks of settings against a schema", f"{json_schema.MOST_STEPS:,}"),
        ("form in the web UI", f"{endpoint.MAX_FORM_BYTES:,} bytes, {endpoint.MAX_FIELDS:,} fields"),
        (
            "Python functions that a worker states",
            f"{functions.MAX_FUNCTIONS:,}, each of {task.MAX_FUNCTION_CHARS:,} characters; then modules",
        ),
        ("page of a log", f"about {logs.PAGE_BYTES:,} bytes"),
        ("requests that wait for such an evaluation", f"{killable.MAX_WAITING}"),
    ]
