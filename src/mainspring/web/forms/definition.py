"""Convert between job definitions and form values. An unchanged field keeps its value exactly."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mainspring.display.definitions import as_json
from mainspring.domain.errors import Invalid, MainspringError, Problem
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.web.forms import field_values, schedule_text
from mainspring.web.forms.fields import EXPRESSION, NAME, NOTIFICATION_EVENTS, OPTIONAL, PLAIN, SCHEDULE, TASKS, Field

Values = Mapping[str, str]
Plugins = Mapping[str, tuple[Field, ...]]
MAX_ROWS = 20
MAX_PLUGIN_FIELDS = 40
PLUGIN = "plugin:"
_ABSENT: Any = object()


def plugin_fields(type_: str, schema: Any) -> tuple[Field, ...]:
    """Return one field for each property of a plug-in's schema, or one JSON field if the schema is not that simple."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties or len(properties) > MAX_PLUGIN_FIELDS:
        return (Field(f"plugin_{type_}", "/task/settings", "Settings", "json", help="A JSON object.", size="grow"),)
    return tuple(_property(type_, name, about) for name, about in properties.items())


def _property(type_: str, name: str, about: Any) -> Field:
    about = about if isinstance(about, dict) else {}
    kinds = {"string": "text", "integer": "number", "number": "number", "boolean": "flag"}
    enum = about.get("enum")
    kind: Any = kinds.get(str(about.get("type")), "json")
    if isinstance(enum, list) and enum and all(isinstance(value, str) for value in enum):
        kind = "choice"
    default = about.get("default")
    hint = "" if default is None else default if isinstance(default, str) else msgspec.json.encode(default).decode()
    options = tuple(enum) if kind == "choice" and isinstance(enum, list) else ()
    hint = hint or ("none" if options else "")
    words = str(about.get("description") or "")
    return Field(
        f"plugin_{type_}_{name}", f"/task/settings/{name}", str(about.get("title") or name), kind, hint, words, options
    )


def kind_of(values: Values) -> str:
    return values.get("kind") or "shell"


def task_fields(kind: str, plugins: Plugins) -> tuple[Field, ...]:
    if kind.startswith(PLUGIN):
        return plugins.get(kind.removeprefix(PLUGIN), ())
    return TASKS.get(kind, ())


def form_values(spec: JobSpec, plugins: Plugins) -> dict[str, str]:
    """Return the form values of a job. `definition` turns them into the same job."""
    whole = as_json(spec)
    task = whole["task"]
    kind = PLUGIN + task["type"] if task["kind"] == "plugin" else task["kind"]
    values = {"kind": kind, **_written((*PLAIN, *task_fields(kind, plugins)), whole, _defaults(spec))}
    if task.get("shell"):
        values["command"] = task["argv"][0]
    values["expression"], values["zone"] = schedule_text.spell(_without_extras(spec.schedule))
    if isinstance(whole["schedule"], dict):
        values.update(_written(SCHEDULE, whole, {}))
    for number, row in enumerate(whole["notify"]):
        values.update({f"notify_{number}_{event}": "1" for event in row["on"]})
        values[f"notify_{number}_to"] = ", ".join(row["to"])
        values.update({f"notify_{number}_{name}": str(row[name]) for name in ("by", "factor")})
    for number, (name, about) in enumerate(whole["params"].items()):
        values.update({f"param_{number}_{part}": text for part, text in field_values.param_row(name, about).items()})
    return {name: text.strip() for name, text in values.items() if text.strip()}


def definition(values: Values, base: JobSpec | None, plugins: Plugins) -> dict[str, Any]:
    """Return the definition of the form as JSON; what the form has no fields for is kept from `base`.

    Raises `Invalid` with all problems, each with the pointer of its field.
    """
    old = {} if base is None else form_values(base, plugins)
    wanted: dict[str, Any] = {} if base is None else copy.deepcopy(as_json(base))
    wanted.pop("paused", None)
    problems: list[Problem] = []
    kind = kind_of(values)
    if kind != old.get("kind"):
        wanted["task"] = {"kind": kind}
        if kind.startswith(PLUGIN):
            wanted["task"] = {"kind": "plugin", "type": kind.removeprefix(PLUGIN)}
    fields = [*PLAIN, *task_fields(kind, plugins)]
    unchanged = kind == old.get("kind") and values.get("shell", "") == old.get("shell", "")
    for field in fields:
        text = values.get(field.name, "")
        if text == old.get(field.name, "") and (unchanged or not field.pointer.startswith("/task/")) and base:
            continue
        problems += _read_field(wanted, field, text, values)
    problems += _schedule(wanted, values, old)
    problems += _read_rows(wanted, values)
    for pointer in OPTIONAL:
        if not any(values.get(f.name) for f in PLAIN if f.pointer.startswith(pointer + "/")):
            wanted.pop(pointer[1:], None)
    if not values.get(NAME.name):
        wanted["name"] = ""
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))
    return wanted


def _read_field(wanted: dict[str, Any], field: Field, text: str, values: Values) -> list[Problem]:
    if field.name == "command" and values.get("shell"):
        put(wanted, field.pointer, [text] if text else _ABSENT)
    else:
        try:
            put(wanted, field.pointer, field_values.read(field, text) if text.strip() else _ABSENT)
        except Invalid as error:
            return list(error.problems)
    if field.name == "command" and not text.strip():
        return [Problem(field.pointer, "a command is required", "for example ./report.sh --all")]
    return []


def _schedule(wanted: dict[str, Any], values: Values, old: Values) -> list[Problem]:
    names = (EXPRESSION.name, "zone", *(f.name for f in SCHEDULE))
    if old and all(values.get(name, "") == old.get(name, "") for name in names):
        return []
    wanted.pop("schedule", None)
    extras = [f for f in SCHEDULE if values.get(f.name)]
    if not values.get(EXPRESSION.name):
        return [Problem(f.pointer, "this setting needs a schedule", "add a schedule") for f in extras]
    problems: list[Problem] = []
    try:
        schedule = schedule_text.read(values[EXPRESSION.name], values.get("zone", ""))
    except Invalid as error:
        return list(error.problems)
    for field in extras:
        if not isinstance(schedule, dict):
            problems.append(Problem(field.pointer, "set this in each of the schedules", "move it there"))
            continue
        try:
            schedule[field.name] = field_values.read(field, values[field.name])
        except Invalid as error:
            problems += error.problems
    wanted["schedule"] = schedule
    return problems


def _read_rows(wanted: dict[str, Any], values: Values) -> list[Problem]:
    """Read the rows of notifications and parameters."""
    problems: list[Problem] = []
    notify: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    for number in range(MAX_ROWS):
        on = [event for event in NOTIFICATION_EVENTS if values.get(f"notify_{number}_{event}")]
        to = [word.strip() for word in values.get(f"notify_{number}_to", "").split(",") if word.strip()]
        if on or to:
            row: dict[str, Any] = {"on": on, "to": to}
            if by := values.get(f"notify_{number}_by"):
                row["by"] = by
            try:
                if factor := values.get(f"notify_{number}_factor"):
                    row["factor"] = field_values.number(factor, f"/notify/{len(notify)}/factor")
            except Invalid as error:
                problems += error.problems
            notify.append(row)
        if name := values.get(f"param_{number}_name"):
            try:
                params[name] = field_values.read_param(name, values, f"param_{number}_")
            except Invalid as error:
                problems += error.problems
    wanted["notify"], wanted["params"] = notify, params
    return problems


def by_field(problems: Iterable[Problem], fields: Iterable[Field]) -> tuple[dict[str, list[Problem]], list[Problem]]:
    """Return problems by the name of their field, and those that concern no field."""
    found: dict[str, list[Problem]] = {}
    rest: list[Problem] = []
    known = list(fields)
    for problem in problems:
        at = problem.pointer
        over = [f for f in known if at == f.pointer or at.startswith(f.pointer + "/")]
        under = [f for f in known if at != "/" and at and f.pointer.startswith(at + "/")]
        chosen = max(over, key=lambda f: len(f.pointer)).name if over else under[0].name if under else None
        if chosen is None and (top := at.split("/")[1:2]) and top[0] in ("notify", "params"):
            chosen = top[0]
        if chosen is None:
            rest.append(problem)
        else:
            found.setdefault(chosen, []).append(problem)
    return found, rest


def problems_of(error: MainspringError) -> tuple[Problem, ...]:
    return error.problems or (Problem("", error.message),)


def put(whole: dict[str, Any], pointer: str, value: Any) -> None:
    """Set or remove the value at a pointer."""
    *path, last = pointer.split("/")[1:]
    for name in path:
        inner = whole.get(name)
        if not isinstance(inner, dict):
            if value is _ABSENT:
                return
            inner = {}
        whole[name] = inner
        whole = inner
    if value is _ABSENT:
        whole.pop(last, None)
    else:
        whole[last] = value


def get(whole: Any, pointer: str) -> Any:
    for name in pointer.split("/")[1:]:
        whole = whole.get(name) if isinstance(whole, dict) else None
    return whole


def _written(fields: Iterable[Field], whole: dict[str, Any], defaults: dict[str, Any]) -> dict[str, str]:
    """Return the fields as text. A default value is left empty: the field shows it as its hint."""
    found = {}
    for field in fields:
        value = get(whole, field.pointer)
        found[field.name] = "" if value == get(defaults, field.pointer) else field_values.write(field, value)
    return found


def _defaults(spec: JobSpec) -> dict[str, Any]:
    defaults = as_json(JobSpec(name="", task=NoopTask()))
    given = {f.encode_name: f.default for f in msgspec.structs.fields(type(spec.task))}
    defaults["task"] = msgspec.to_builtins({k: v for k, v in given.items() if v is not msgspec.NODEFAULT})
    # Their limits have no default: an object without a limit does not exist.
    defaults["concurrency"], defaults["rate"] = {"key": "{{job}}"}, {"key": "{{job}}", "per": "1s", "burst": 1}
    return defaults


def _without_extras(schedule: Any) -> Any:
    """Return the schedule without the settings that have their own fields."""
    if not isinstance(schedule, ScheduleSpec):
        return schedule
    bare = {f.name: f.default for f in msgspec.structs.fields(ScheduleSpec) if f.name in {s.name for s in SCHEDULE}}
    return msgspec.structs.replace(schedule, **bare)
