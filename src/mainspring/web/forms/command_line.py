"""What to type for what a page shows: the same thing from a terminal, or a body for the API."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from mainspring.codec import encode
from mainspring.display.definitions import as_json
from mainspring.domain.job import JobSpec, NoopTask, ShellTask

_PLAIN = {
    "queue": "--queue", "priority": "--priority", "timeout": "--timeout", "overlap": "--overlap",
    "delivery": "--delivery", "description": "--description", "pause_after_failures": "--pause-after-failures",
    "start_by": "--start-by", "finish_by": "--finish-by", "max_gap": "--max-gap", "estimated_duration": "--expect",
}  # fmt: skip
_SCHEDULE = {
    "cron": "--cron", "every": "--every", "at": "--at", "rrule": "--rrule", "dtstart": "--dtstart",
    "timezone": "--tz", "calendar": "--calendar", "roll": "--roll", "jitter": "--jitter", "max_fires": "--max-fires",
}  # fmt: skip
_RETRIES = {
    "max": "--retries", "base": "--retry-base", "cap": "--retry-cap", "factor": "--retry-factor",
    "jitter": "--retry-jitter", "on": "--retry-on", "only_exit_codes": "--retry-exit-code",
    "never_exit_codes": "--no-retry-exit-code", "only_errors": "--retry-error", "never_errors": "--no-retry-error",
}  # fmt: skip


def add(spec: JobSpec, *, replace: bool = False) -> str | None:
    """The line that adds this job; None if it needs the API, for lack of flags."""
    if not isinstance(spec.task, ShellTask) or spec.task.shell:
        return None
    said = spoken(spec)
    task = said.pop("task")
    words = ["mainspring", "add", said.pop("name"), *(["--replace"] if replace else [])]
    schedule = said.pop("schedule", {})
    if not isinstance(schedule, dict):
        return None
    for given, flags in ((schedule, _SCHEDULE), (said.pop("retries", {}), _RETRIES), (said, _PLAIN)):
        for name in [name for name in flags if name in given]:
            value = given.pop(name)
            for one in value if isinstance(value, tuple) else [value]:
                words += [flags[name], str(one)]
        if given is not said and given:
            return None
    words += _rest(said)
    if said.keys() - {"paused"}:
        return None
    for name, value in task.get("env", {}).items():
        words += ["--env", f"{name}={value}"]
    words += ["--cwd", task["cwd"]] if task.get("cwd") else []
    return shlex.join(words) + " -- " + shlex.join(task["argv"])


def _rest(said: dict[str, Any]) -> list[str]:
    """Flags that are not simply a name and a value; what was written is taken away."""
    words: list[str] = []
    for name in ("labels", "resources"):
        for key, value in said.pop(name, {}).items():
            words += [f"--{name}", f"{key}={value}"]
    words += [f"--{name}" for name in ("exclusive", "ordered") if said.pop(name, False)]
    if said.get("misfire", {}).keys() == {"policy"}:
        words += ["--misfire", said.pop("misfire")["policy"]]
    if (limit := said.get("concurrency")) is not None:
        key = f"{limit['key']}=" if limit.get("key", "{{job}}") != "{{job}}" else ""
        words += ["--concurrency", f"{key}{said.pop('concurrency')['limit']}"]
    if (rate := said.get("rate")) is not None and rate.get("burst", 1) == 1:
        key = f"{rate['key']}=" if rate.get("key", "{{job}}") != "{{job}}" else ""
        words += ["--rate", f"{key}{said.pop('rate')['limit']}/{rate['per']}"]
    if all(entry.keys() == {"on", "to"} for entry in said.get("notify", ())):
        for entry in said.pop("notify", ()):
            words += ["--notify", f"{','.join(entry['on'])}={','.join(entry['to'])}"]
    return words


def body(spec: JobSpec) -> str:
    """What to send to POST /api/v1/jobs; defaults are left out."""
    return msgspec.json.format(encode(spoken(spec)), indent=2).decode()


def run(name: str, params: dict[str, Any], *, at: str = "", key: str = "", workflow: bool = False) -> str:
    words = ["mainspring", *(["workflows"] if workflow and not at else []), "run", name]
    for param, value in params.items():
        words += ["-p", f"{param}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    words += [*(["--at", at] if at else []), *(["--key", key] if key else [])]
    return shlex.join(words)


def spoken(spec: JobSpec) -> dict[str, Any]:
    """The definition without what is as usual."""
    whole, usual = as_json(spec), as_json(JobSpec(name="", task=NoopTask()))
    found: dict[str, Any] = {}
    for name, value in whole.items():
        if isinstance(value, dict) and isinstance(usual[name], dict) and name in ("retries", "misfire"):
            value = {k: v for k, v in value.items() if v != usual[name][k]}
        if name == "task":
            value = {k: v for k, v in value.items() if k == "kind" or v not in (None, False, {}, ())}
        if name == "notify":
            value = [{k: v for k, v in e.items() if (k, v) not in (("by", "1m"), ("factor", 2.0))} for e in value]
        if name == "task" or (value not in ({}, [], None, "") and value != usual[name]):
            found[name] = value
    return found
