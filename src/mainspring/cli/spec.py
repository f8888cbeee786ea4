"""Job definitions from command-line options, for `add` and `jobs edit`."""

from __future__ import annotations

from typing import Any

import click

from mainspring.cli.spec_options import value_of
from mainspring.codec import decode, encode
from mainspring.display.definitions import as_json
from mainspring.domain.job import JobSpec

_KINDS = ("cron", "every", "at", "rrule")
_BESIDE = ("tz", "dtstart", "calendar", "roll", "jitter", "max_fires", "start_at", "end_at", "run_if_late")
_TASKS = {"http": "url", "container": "image", "function": "function"}
"""The options that select a kind of task, and the field that each sets."""
_TASK_OPTIONS = {
    "http": {"method": "method", "headers": "headers", "body": "body"},
    "container": {"network": "network", "env": "env", "cwd": "workdir"},
    "python": {"args": "args"},
    "shell": {"env": "env", "cwd": "cwd"},
}
"""The options of each kind of task, and the fields that they set."""
_KIND_OF = {"http": "http", "container": "container", "function": "python"}
_NAMES = {"tz": "timezone"}
_PLAIN = (
    "queue", "priority", "timeout", "overlap", "delivery", "description", "pause_after_failures", "start_by",
    "finish_by", "max_gap", "spot",
)  # fmt: skip
_WINDOW = ("before", "within", "takes")
_FLAGS = ("ordered", "exclusive", "preemptible")
_RETRIES = {
    "retries": "max", "retry_base": "base", "retry_cap": "cap", "retry_factor": "factor", "retry_jitter": "jitter",
    "retry_on": "on", "retry_exit_code": "only_exit_codes", "no_retry_exit_code": "never_exit_codes",
    "retry_error": "only_errors", "no_retry_error": "never_errors",
}  # fmt: skip


def changed(spec: dict[str, Any], flags: dict[str, Any], argv: tuple[str, ...]) -> dict[str, Any]:
    """Return `spec` (as JSON values) with the given options applied; options left out change nothing."""
    wanted: dict[str, Any] = {**spec, **{name: flags[name] for name in _PLAIN if flags[name] is not None}}
    if (schedule := _schedule(spec.get("schedule"), flags)) is not None:
        wanted["schedule"] = schedule
    retries = {field: flags[flag] for flag, field in _RETRIES.items() if flags.get(flag) not in (None, ())}
    if retries:
        wanted["retries"] = {**spec.get("retries", {}), **retries}
    if flags["misfire"] is not None:
        wanted["misfire"] = {**spec.get("misfire", {}), "policy": flags["misfire"]}
    for name in ("estimated_duration", *_FLAGS):
        if flags.get(name) is not None:
            wanted[name] = flags[name]
    for name in ("labels", "resources"):
        if flags.get(name):
            wanted[name] = {**spec.get(name, {}), **flags[name]}
    if window := {name: flags[name] for name in _WINDOW if flags.get(name) is not None}:
        wanted["flexible"] = _flexible(spec.get("flexible") or {}, window)
    if flags.get("concurrency") is not None:
        wanted["concurrency"] = _concurrency(flags["concurrency"])
    if flags.get("rate") is not None:
        wanted["rate"] = _rate(flags["rate"])
    if flags.get("notify"):
        wanted["notify"] = [{"on": on.split(","), "to": to.split(",")} for on, to in flags["notify"].items()]
    if flags.get("params"):
        wanted["params"] = {**spec.get("params", {}), **flags["params"]}
    wanted["task"] = _task(spec.get("task", {"kind": "shell"}), flags, argv)
    return wanted


def names_a_task(flags: dict[str, Any]) -> bool:
    """Whether the options say what to do, without a command."""
    return any(flags.get(flag) is not None for flag in _TASKS)


def _flexible(old: dict[str, Any], window: dict[str, Any]) -> dict[str, Any]:
    """The window that the options describe; a new end replaces the old one."""
    ends = {"before", "within"} & window.keys()
    return {name: value for name, value in old.items() if value is not None and not (ends and name != "takes")} | window


def _concurrency(text: str) -> dict[str, Any]:
    key, _, limit = text.rpartition("=")
    if not limit.isdigit():
        raise click.UsageError(f"Invalid value for --concurrency: {text!r}. Write N or KEY=N, such as 5 or reports=5.")
    return {**({"key": key} if key else {}), "limit": int(limit)}


def _rate(text: str) -> dict[str, Any]:
    key, _, pace = text.rpartition("=")
    limit, slash, per = pace.partition("/")
    if not limit.isdigit() or not slash or not per:
        raise click.UsageError(
            f"Invalid value for --rate: {text!r}. Write [KEY=]N/DURATION, such as 10/1m or api=10/1m."
        )
    return {**({"key": key} if key else {}), "limit": int(limit), "per": per if per[0].isdigit() else f"1{per}"}


def completed(spec: dict[str, Any]) -> dict[str, Any]:
    """Return `spec` with all defaults filled in, as the server does."""
    return as_json(decode(encode(spec), JobSpec))


def _schedule(old: dict[str, Any] | list[Any] | None, flags: dict[str, Any]) -> dict[str, Any] | None:
    """The schedule that the options describe; None if they do not change it."""
    given = {kind: flags[kind] for kind in _KINDS if flags[kind] is not None}
    beside = {_NAMES.get(flag, flag): flags[flag] for flag in _BESIDE if flags.get(flag) is not None}
    if isinstance(old, list):
        if beside and not given:
            raise click.UsageError(
                "The job has several schedules. Replace them with --cron, --every, --at or --rrule, or use the API."
            )
        old = None
    if len(given) > 1:
        raise click.UsageError(f"Use only one of --{' and --'.join(given)}.")
    if not given and beside and old is None:
        flag = next(flag for flag in _BESIDE if flags.get(flag) is not None).replace("_", "-")
        raise click.UsageError(f"--{flag} needs a schedule: add --cron, --every, --at or --rrule.")
    if not given:
        return {**old, **beside} if old is not None and beside else None
    kept = {name: value for name, value in (old or {}).items() if value is not None}
    if not kept.keys() & given.keys():
        # The new kind of schedule keeps the time zone; the other fields of the old kind do not apply to it.
        kept = {name: value for name, value in kept.items() if name == "timezone"}
    return {**kept, **given, **beside}


def _task(old: dict[str, Any], flags: dict[str, Any], argv: tuple[str, ...]) -> dict[str, Any]:
    """The task that the options describe. Options of another kind of task are refused."""
    chosen = [flag for flag in _TASKS if flags.get(flag) is not None]
    if len(chosen) > 1:
        raise click.UsageError(f"Use only one of --{' and --'.join(chosen)}.")
    task = dict(old)
    if chosen:
        kind = _KIND_OF[chosen[0]]
        task = {**(old if old.get("kind") == kind else {}), "kind": kind, _TASKS[chosen[0]]: flags[chosen[0]]}
    elif argv and task.get("kind") not in ("shell", "container"):
        task = {"kind": "shell"}
    kind = str(task.get("kind", "shell"))
    if argv and kind not in ("shell", "container"):
        raise click.UsageError(f"--{chosen[0]} takes no command after --.")
    if argv:
        task["args" if kind == "container" else "argv"] = list(argv)
    return {**task, **_task_options(task, kind, flags)}


def _task_options(task: dict[str, Any], kind: str, flags: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    known = _TASK_OPTIONS.get(kind, {})
    for flag in dict.fromkeys(flag for options in _TASK_OPTIONS.values() for flag in options):
        value = flags.get(flag)
        if value in (None, {}):
            continue
        if flag not in known:
            shown = {"headers": "header", "args": "arg"}.get(flag, flag)
            raise click.UsageError(f"--{shown} does not apply to a task of the kind {kind}.")
        if flag == "body":
            value = value_of(value)
        fields[known[flag]] = (
            {**task.get(known[flag], {}), **value} if isinstance(value, dict) and flag != "body" else value
        )
    return fields
