"""Celery beat schedules: `beat_schedule` in a Python file, read from its syntax tree, or in JSON."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from typing import Any

from mainspring.domain.job import Misfire
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.task import PythonTask
from mainspring.importers.build import NO_RETRIES, build_job
from mainspring.importers.located import Mapping, line_of, read_json
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.python_source import Call, Module, Unknown, name_of
from mainspring.importers.rules.days import DayRule
from mainspring.importers.rules.elapsed import ElapsedRule, SourceRule
from mainspring.importers.rules.field_sets import SUNDAY_0, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, write_schedule

FIELDS = {
    "minute": FieldKind("minute", 0, 59, wraps=True, open_steps=False),
    "hour": FieldKind("hour", 0, 23, wraps=True, open_steps=False),
    "day_of_week": FieldKind("day_of_week", 0, 6, SUNDAY_0, wraps=True, open_steps=False, long_names=True),
    "day_of_month": FieldKind("day_of_month", 1, 31, wraps=True, open_steps=False),
    "month_of_year": FieldKind("month_of_year", 1, 12, wraps=True, open_steps=False),
}
_SCHEDULES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_DAY_S = 86_400


def read_celery(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read the schedules of Celery beat into a plan."""
    plan, names = Plan("celery"), Names(options.prefix)
    for file in files:
        if file.text.lstrip()[:1] in ("{", "["):
            _read_json(plan, names, file, options)
        else:
            _read_python(plan, names, file, options)
    return plan


def _read_json(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    root = read_json(file)
    if not isinstance(root, Mapping):
        plan.find("unsupported", file.name, 1, "", "the file is not an object", 'write {"beat_schedule": {…}}')
        return
    found = next((root[key] for key in _SCHEDULES if isinstance(root.get(key), Mapping)), root)
    zone = next((root[key] for key in _ZONES if isinstance(root.get(key), str)), options.timezone)
    for name, entry in found.items():
        if isinstance(entry, Mapping):
            _read_entry(plan, names, file, options, name, entry, line_of(entry), zone)


def _read_python(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    module = Module(file)
    zone = options.timezone
    for key, value in _settings(module):
        if key in _ZONES and isinstance(found := module.read(value), str):
            zone = found
    for key, value in _settings(module):
        if key not in _SCHEDULES:
            continue
        table = module.constants.get(value.id) if isinstance(value, ast.Name) else value
        if not isinstance(table, ast.Dict):
            hint = "write the schedule as a dictionary, or export it as JSON"
            plan.find("unsupported", file.name, value.lineno, key, "the schedule is computed by the program", hint)
            continue
        for name_node, entry in zip(table.keys, table.values, strict=True):
            name = module.read(name_node)
            _read_entry(plan, names, file, options, name, module.read(entry), entry.lineno, zone)
    for node in module.calls():
        if name_of(node.func) == "add_periodic_task":
            _read_call(plan, names, file, options, module, node, zone)


def _settings(module: Module) -> list[tuple[str, ast.expr]]:
    """Assignments `x.conf.beat_schedule = …`, `beat_schedule = …`, and keywords of `conf.update(…)`."""
    found: list[tuple[str, ast.expr]] = []
    for node in module.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    found.append((str(target.slice.value), node.value))
                else:
                    found.append((name_of(target), node.value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.append((name_of(node.target), node.value))
        elif isinstance(node, ast.Call) and name_of(node.func) in ("update", "Celery", "config_from_object"):
            found.extend((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    pairs = zip(argument.keys, argument.values, strict=True)
                    found.extend((str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant))
    return [(key, value) for key, value in found if key in (*_SCHEDULES, *_ZONES)]


def _read_call(
    plan: Plan, names: Names, file: SourceFile, options: ReadOptions, module: Module, node: ast.Call, zone: str
) -> None:
    """`sender.add_periodic_task(crontab(…), task.s(…), name="…")`."""
    call = module.read(node)
    assert isinstance(call, Call)
    task = node.args[1] if len(node.args) > 1 else None
    function = ""
    if isinstance(task, ast.Call) and isinstance(task.func, ast.Attribute):
        function = module.function_of(task.func.value)
    signature = call.args[1] if len(call.args) > 1 else None
    entry = {
        "task": function,
        "schedule": call.args[0] if call.args else None,
        "args": list(signature.args) if isinstance(signature, Call) else [],
        "kwargs": signature.kwargs if isinstance(signature, Call) else {},
    }
    name = call.kwargs.get("name")
    _read_entry(plan, names, file, options, name if isinstance(name, str) else function, entry, node.lineno, zone)


def _read_entry(
    plan: Plan, names: Names, file: SourceFile, options: ReadOptions, name: Any, entry: Any, line: int, zone: str
) -> None:
    shown = name if isinstance(name, str) else "entry"
    try:
        if not isinstance(name, str) or not isinstance(entry, dict):
            raise Unsupported("the entry is computed by the program", "write it as a dictionary")
        given = entry.get("schedule")
        zone = check_zone(zone)
        rule = read_rule(given, zone)
        job = names.take(name)
        task = _task(plan, file, line, job, entry)
        schedule = _schedule(rule)
        spec = build_job(
            plan,
            options,
            name=job,
            task=task,
            schedule=schedule,
            retries=NO_RETRIES,
            overlap="allow",
            misfire=Misfire(policy="latest"),
            timeout=options.timeout,
            paused=entry.get("enabled") is False,
        )
        for key in sorted(entry.keys() - {"task", "schedule", "args", "kwargs", "relative", "enabled"}):
            hint = "choose the queue with: mainspring jobs edit NAME --queue" if key == "options" else ""
            plan.find("dropped", file.name, line, job, f"{key} is not carried over", hint)
        plan.add(Entry(file.name, line, spec, rule, schedule_text(given)))
    except Unsupported as error:
        plan.find("unsupported", file.name, error.line or line, shown, error.message, error.hint)
    except FieldError as error:
        plan.find("unsupported", file.name, line, shown, str(error), "correct the schedule")


def read_rule(given: Any, zone: str) -> SourceRule:
    """When beat fires: a skipped time by the length of the gap later, a repeated one in its first pass."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if isinstance(given, Call) and given.name in ("schedule", "maybe_schedule", "timedelta"):
        given = given.kwargs.get("run_every", given.args[0] if given.args else None)
        return read_rule(given, zone)
    if isinstance(given, int | float) and not isinstance(given, bool):
        if not 1 <= given <= 50 * 366 * _DAY_S or round(given * 1000) != given * 1000:
            raise Unsupported(f"every {given} seconds is out of range", "use 1 second to 50 years")
        return ElapsedRule(round(given * 1000))
    fields: Any = None
    if isinstance(given, Call) and given.name == "crontab":
        fields = {**dict(zip(FIELDS, given.args, strict=False)), **given.kwargs}
        fields = {key: value for key, value in fields.items() if key not in ("app", "nowfun")}
    elif isinstance(given, dict):
        fields = given.get("crontab", given)
    if isinstance(fields, str):
        words = fields.split()
        keys = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        fields = dict(zip(keys, words, strict=True)) if len(words) == 5 else None
    if isinstance(given, Call) and given.name == "solar":
        hint = "no schedule follows the sun: choose a fixed time, or compute times and submit with at"
        raise Unsupported("solar schedules are not carried over", hint, given.line)
    if not isinstance(fields, dict) or fields.keys() - FIELDS.keys():
        hint = "write crontab(…), a timedelta or a number of seconds"
        raise Unsupported(f"the schedule {schedule_text(given)} cannot be read", hint)
    numbers = {key: _numbers(fields.get(key, "*"), kind) for key, kind in FIELDS.items()}
    days = DayRule(numbers["day_of_month"], numbers["day_of_week"], numbers["month_of_year"])
    return WallRule(numbers["minute"], numbers["hour"], days, zone=zone, gap="shift", passes="first")


def _numbers(given: Any, kind: FieldKind) -> frozenset[int]:
    if isinstance(given, str):
        return read_field(given, kind).numbers
    values = given if isinstance(given, list) else [given]
    if not all(isinstance(value, int) and kind.low <= value <= kind.high for value in values) or not values:
        raise FieldError(f"{kind.name}: {schedule_text(given)} cannot be read")
    return frozenset(values)


def _schedule(rule: SourceRule) -> ScheduleSpec:
    if isinstance(rule, ElapsedRule):
        return ScheduleSpec(every=rule.every_ms // 1000 if rule.every_ms % 1000 == 0 else rule.every_ms / 1000)
    assert isinstance(rule, WallRule)
    return write_schedule(rule)


def _task(plan: Plan, file: SourceFile, line: int, name: str, entry: dict[str, Any]) -> PythonTask:
    function = entry.get("task")
    if not isinstance(function, str) or not function:
        raise Unsupported("the task has no name in the text", "write the task as a string")
    if entry.get("args"):
        hint = "give the arguments by name, in kwargs"
        raise Unsupported("positional arguments cannot be carried over", hint)
    args = entry.get("kwargs") or {}
    if not isinstance(args, dict) or not _is_plain(args):
        raise Unsupported("the arguments are computed by the program", "write them as literals")
    if _FUNCTION.match(function):
        module, _, attribute = function.rpartition(".")
        function = f"{module}:{attribute}"
    message = f"calls the function {function}: a worker must load it"
    plan.find("note", file.name, line, name, message, "start a worker with the module: mainspring worker --help")
    return PythonTask(function=function, args=dict(args))


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        return depth < 20 and all(_is_plain(item, depth + 1) for item in value.values())
    if isinstance(value, list):
        return depth < 20 and all(_is_plain(item, depth + 1) for item in value)
    return value is None or isinstance(value, str | int | float | bool)


def schedule_text(given: Any) -> str:
    """A schedule as the source wrote it, for the report."""
    match given:
        case Call(name=name, args=args, kwargs=kwargs):
            inner = [*(schedule_text(value) for value in args), *(f"{k}={schedule_text(v)}" for k, v in kwargs.items())]
            return f"{name}({', '.join(inner)})"[:200]
        case Unknown(text=text):
            return text[:60]
        case timedelta():
            return f"every {given}"
    return str(given)[:200] if isinstance(given, str | int | float) else repr(given)[:200]
