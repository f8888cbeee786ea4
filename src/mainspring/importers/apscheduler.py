"""APScheduler 3 jobs: `add_job` and `scheduled_job` in a Python file, or a list of jobs in JSON."""

from __future__ import annotations

import ast
from datetime import timedelta
from typing import Any

import msgspec

from mainspring.domain.job import Misfire
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.task import PythonTask
from mainspring.importers.apscheduler_cron import FIELDS, crontab_fields, read_rule
from mainspring.importers.build import NO_RETRIES, build_job
from mainspring.importers.celery import schedule_text
from mainspring.importers.located import Items, Mapping, line_of, read_json
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.python_source import Call, Module, Unknown, name_of
from mainspring.importers.rules.elapsed import ElapsedRule, OnceRule, SourceRule, WindowRule
from mainspring.importers.rules.field_sets import FieldError
from mainspring.importers.schedule_writer import check_zone, instant_text, wall_ms, write_schedule

_TRIGGERS = {"CronTrigger": "cron", "IntervalTrigger": "interval", "DateTrigger": "date"}
_UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_OPTIONS = {
    "func", "trigger", "args", "kwargs", "id", "name", "misfire_grace_time", "coalesce", "max_instances",
    "next_run_time", "replace_existing", "executor", "jobstore",
}  # fmt: skip
_DROPPED = ("executor", "jobstore", "next_run_time")


def read_apscheduler(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read the jobs of APScheduler into a plan."""
    plan, names = Plan("apscheduler"), Names(options.prefix)
    for file in files:
        if file.text.lstrip()[:1] in ("{", "["):
            _read_json(plan, names, file, options)
        else:
            _read_python(plan, names, file, options)
    return plan


def _read_json(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    root = read_json(file)
    jobs = root.get("jobs", root.get("JOBS")) if isinstance(root, Mapping) else root
    zone = root.get("timezone", options.timezone) if isinstance(root, Mapping) else options.timezone
    if not isinstance(jobs, Items):
        plan.find("unsupported", file.name, 1, "", "the file has no list of jobs", 'write {"jobs": [{"id": …}]}')
        return
    for job in jobs:
        if isinstance(job, Mapping):
            given: dict[str, Any] = dict(job)
            if isinstance(trigger := given.get("trigger"), Mapping):
                given |= {key: value for key, value in trigger.items() if key != "type"}
                given["trigger"] = trigger.get("type")
            _read_job(plan, names, file, options, given, str(given.get("func", "")), line_of(job), str(zone))


def _read_python(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    module = Module(file)
    calls = list(module.calls())
    zone = options.timezone
    for node in calls:
        if name_of(node.func).endswith("Scheduler"):
            call = module.read(node)
            if isinstance(call, Call) and (found := _zone_text(call.kwargs.get("timezone"))):
                zone = found
    decorated = {
        decorator: node
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
    }
    for node in calls:
        name = name_of(node.func)
        if name == "add_job" and (node.args or node.keywords):
            target = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "func"), None)
            _read_call(plan, names, module, options, node, target, skip=1, zone=zone)
        elif name == "scheduled_job" and node in decorated:
            target = ast.Name(id=decorated[node].name)
            _read_call(plan, names, module, options, node, target, skip=0, zone=zone)


def _read_call(
    plan: Plan, names: Names, module: Module, options: ReadOptions, node: ast.Call, target: ast.expr | None, *,
    skip: int, zone: str,
) -> None:  # fmt: skip
    call = module.read(node)
    assert isinstance(call, Call)
    given: dict[str, Any] = dict(call.kwargs)
    order = ("trigger", "args", "kwargs", "id", "name")
    given |= dict(zip(order, call.args[skip:], strict=False))
    trigger = given.get("trigger")
    if isinstance(trigger, Call):
        given |= _trigger_fields(trigger)
    function = ""
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        function = target.value
    elif isinstance(target, ast.Name | ast.Attribute):
        function = module.function_of(target)
    _read_job(plan, names, module.file, options, given, function, node.lineno, zone)


def _trigger_fields(trigger: Call) -> dict[str, Any]:
    """The fields of `CronTrigger(…)`, `CronTrigger.from_crontab(…)`, `IntervalTrigger(…)` and `DateTrigger(…)`."""
    if trigger.name == "from_crontab":
        return {**trigger.kwargs, "trigger": "cron", "crontab": trigger.args[0] if trigger.args else None}
    kind = _TRIGGERS.get(trigger.name, trigger.name)
    order = {"cron": FIELDS, "interval": tuple(_UNITS), "date": ("run_date", "timezone")}.get(kind, ())
    return {**dict(zip(order, trigger.args, strict=False)), **trigger.kwargs, "trigger": kind}


def _read_job(
    plan: Plan, names: Names, file: SourceFile, options: ReadOptions, given: dict[str, Any], function: str, line: int,
    zone: str,
) -> None:  # fmt: skip
    wanted = next((value for key in ("id", "name") if isinstance(value := given.get(key), str)), "")
    wanted = wanted or function.rpartition(":")[2] or "job"
    try:
        zone = check_zone(_zone_text(given.get("timezone")) or zone)
        rule, schedule = _schedule(given, zone, options)
        if not function:
            raise Unsupported("the function has no name in the text", "write func as module:function")
        arguments = given.get("kwargs") or {}
        if given.get("args"):
            raise Unsupported("positional arguments cannot be carried over", "give them by name, in kwargs")
        if not isinstance(arguments, dict) or any(isinstance(v, Unknown | Call) for v in arguments.values()):
            raise Unsupported("the arguments are computed by the program", "write them as literals")
        name = names.take(wanted)
        instances, grace = given.get("max_instances", 1), given.get("misfire_grace_time")
        spec = build_job(
            plan,
            options,
            name=name,
            task=PythonTask(function=function, args=dict(arguments)),
            schedule=schedule,
            retries=NO_RETRIES,
            overlap="allow" if isinstance(instances, int) and instances > 1 else "skip",
            misfire=Misfire(policy="latest" if given.get("coalesce", True) is not False else "all"),
            start_by=f"{grace}s" if isinstance(grace, int) and grace > 0 else None,
            timeout=options.timeout,
        )
        message = f"calls the function {function}: a worker must load it"
        plan.find("note", file.name, line, name, message, "start a worker with the module: mainspring worker --help")
        for key in _DROPPED:
            if given.get(key) is not None:
                plan.find("dropped", file.name, line, name, f"{key} is not carried over", "")
        plan.add(Entry(file.name, line, spec, rule, _text(given)))
    except Unsupported as error:
        plan.find("unsupported", file.name, error.line or line, wanted, error.message, error.hint)
    except FieldError as error:
        plan.find("unsupported", file.name, line, wanted, str(error), "correct the trigger")


def _schedule(given: dict[str, Any], zone: str, options: ReadOptions) -> tuple[SourceRule, ScheduleSpec]:
    kind = given.get("trigger")
    start, end = _instant(given.get("start_date"), zone), _instant(given.get("end_date"), zone)
    jitter = given.get("jitter")
    more: dict[str, Any] = {"jitter": f"{jitter}s"} if isinstance(jitter, int | float) and jitter > 0 else {}
    if kind == "cron":
        fields = {key: given[key] for key in FIELDS if given.get(key) is not None}
        if "crontab" in given:
            fields = crontab_fields(given["crontab"])
        rule = read_rule(fields, zone)
        spec = msgspec.structs.replace(write_schedule(rule), **more)
        if start is None and end is None:
            return rule, spec
        window = {"start_at": start, "end_at": end}
        spec = msgspec.structs.replace(spec, **{k: instant_text(v) for k, v in window.items() if v is not None})
        return WindowRule(rule, start, end), spec
    if kind == "interval":
        return _interval(given, start, end, more)
    if kind in ("date", None):
        at = _instant(given.get("run_date"), zone)
        if at is None:
            raise Unsupported("the job has no trigger: it runs once, when it is added", "submit it instead")
        if at <= options.now_ms:
            raise Unsupported(f"{instant_text(at)} is in the past", "remove the job, or change run_date")
        return OnceRule(at), ScheduleSpec(at=instant_text(at))
    raise Unsupported(f"the trigger {schedule_text(kind)} cannot be read", "use cron, interval or date")


def _interval(
    given: dict[str, Any], start: int | None, end: int | None, more: dict[str, Any]
) -> tuple[SourceRule, ScheduleSpec]:
    amounts = {unit: given.get(unit) or 0 for unit in _UNITS}
    if not all(isinstance(amount, int | float) for amount in amounts.values()):
        raise Unsupported("the interval is computed by the program", "write it as numbers")
    every_ms = round(sum(amounts[unit] * seconds for unit, seconds in _UNITS.items()) * 1000) or 1000
    if not 1000 <= every_ms <= 50 * 366 * 86_400_000 or every_ms % 1000:
        raise Unsupported("the interval cannot be expressed", "use whole seconds, at least one")
    spec = ScheduleSpec(every=every_ms // 1000, **more)
    window = {"start_at": start, "end_at": end}
    spec = msgspec.structs.replace(spec, **{k: instant_text(v) for k, v in window.items() if v is not None})
    rule: SourceRule = ElapsedRule(every_ms, start)
    return (WindowRule(ElapsedRule(every_ms, start), None, end) if end is not None else rule), spec


def _instant(given: Any, zone: str) -> int | None:
    """`datetime(…)`, an ISO text, or nothing."""
    if given is None:
        return None
    if isinstance(given, Call) and given.name in ("datetime", "date") and _are_numbers(given.args):
        numbers = [*given.args, *(0 for _ in range(6 - len(given.args)))]
        given = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}".format(*numbers)
    if not isinstance(given, str):
        raise Unsupported("a date is computed by the program", "write it as a literal")
    try:
        return wall_ms(given[:40], zone)
    except ValueError:
        raise Unsupported(f"{given[:40]!r} is not a date", "write for example 2027-01-31 09:00:00") from None


def _are_numbers(values: tuple[Any, ...]) -> bool:
    """Whether the values can be a year, a month, a day and a time."""
    return 3 <= len(values) <= 6 and all(isinstance(value, int) and 0 <= value < 10_000 for value in values)


def _zone_text(given: Any) -> str:
    """A zone by name: a text, `timezone("…")`, `ZoneInfo("…")`, `utc`."""
    if isinstance(given, str):
        return given
    if isinstance(given, Call) and given.args and isinstance(given.args[0], str):
        return given.args[0]
    if isinstance(given, Unknown) and given.text.lower().removeprefix("….") == "utc":
        return "UTC"
    return ""


def _text(given: dict[str, Any]) -> str:
    shown = {key: value for key, value in given.items() if key not in _OPTIONS and not isinstance(value, timedelta)}
    fields = ", ".join(f"{key}={schedule_text(value)}" for key, value in shown.items())
    return f"{given.get('trigger') if isinstance(given.get('trigger'), str) else ''}({fields})"[:200]
