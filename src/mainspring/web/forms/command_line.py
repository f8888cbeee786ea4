"""The command line, or the API request body, that is equivalent to a form."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from mainspring import manifest
from mainspring.codec import encode
from mainspring.domain.job import JobSpec, ShellTask

_JOB_FLAGS = {
    "queue": "--queue", "priority": "--priority", "timeout": "--timeout", "overlap": "--overlap",
    "delivery": "--delivery", "description": "--description", "pause_after_failures": "--pause-after-failures",
    "start_by": "--start-by", "finish_by": "--finish-by", "max_gap": "--max-gap", "estimated_duration": "--expect",
    "spot": "--spot",
}  # fmt: skip
_SCHEDULE_FLAGS = {
    "cron": "--cron", "every": "--every", "at": "--at", "rrule": "--rrule", "dtstart": "--dtstart",
    "timezone": "--tz", "calendar": "--calendar", "roll": "--roll", "jitter": "--jitter", "max_fires": "--max-fires",
}  # fmt: skip
_RETRY_FLAGS = {
    "max": "--retries", "base": "--retry-base", "cap": "--retry-cap", "factor": "--retry-factor",
    "jitter": "--retry-jitter", "on": "--retry-on", "only_exit_codes": "--retry-exit-code",
    "never_exit_codes": "--no-retry-exit-code", "only_errors": "--retry-error", "never_errors": "--no-retry-error",
}  # fmt: skip


def add(spec: JobSpec, *, replace: bool = False) -> str | None:
    """Return the command that adds the job; None if the command line lacks a flag for it."""
    if not isinstance(spec.task, ShellTask) or spec.task.shell:
        return None
    values = without_defaults(spec)
    task = values.pop("task")
    words = ["mainspring", "add", values.pop("name"), *(["--replace"] if replace else [])]
    schedule = values.pop("schedule", {})
    if not isinstance(schedule, dict):
        return None
    for given, flags in ((schedule, _SCHEDULE_FLAGS), (values.pop("retries", {}), _RETRY_FLAGS), (values, _JOB_FLAGS)):
        for name in [name for name in flags if name in given]:
            value = given.pop(name)
            for each in value if isinstance(value, list | tuple) else [value]:
                words += [flags[name], str(each)]
        if given is not values and given:
            return None
    words += _rest(values)
    if values.keys() - {"paused"}:
        return None
    for name, value in task.get("env", {}).items():
        words += ["--env", f"{name}={value}"]
    words += ["--cwd", task["cwd"]] if task.get("cwd") else []
    return shlex.join(words) + " -- " + shlex.join(task["argv"])


def _rest(values: dict[str, Any]) -> list[str]:
    """Return the flags that are not a plain name and value, and remove their values."""
    words: list[str] = []
    for name, value in values.pop("flexible", {}).items():
        words += [f"--{name}", str(value)]
    for name in ("labels", "resources"):
        for key, value in values.pop(name, {}).items():
            words += [f"--{name}", f"{key}={value}"]
    words += [f"--{name}" for name in ("exclusive", "ordered") if values.pop(name, False)]
    if values.get("misfire", {}).keys() == {"policy"}:
        words += ["--misfire", values.pop("misfire")["policy"]]
    if (limit := values.get("concurrency")) is not None:
        key = f"{limit['key']}=" if limit.get("key", "{{job}}") != "{{job}}" else ""
        words += ["--concurrency", f"{key}{values.pop('concurrency')['limit']}"]
    if (rate := values.get("rate")) is not None and rate.get("burst", 1) == 1:
        key = f"{rate['key']}=" if rate.get("key", "{{job}}") != "{{job}}" else ""
        words += ["--rate", f"{key}{values.pop('rate')['limit']}/{rate['per']}"]
    if all(entry.keys() == {"on", "to"} for entry in values.get("notify", ())):
        for entry in values.pop("notify", ()):
            words += ["--notify", f"{','.join(entry['on'])}={','.join(entry['to'])}"]
    return words


def body(spec: JobSpec) -> str:
    """Return the body for POST /api/v1/jobs; defaults are left out."""
    return msgspec.json.format(encode(without_defaults(spec)), indent=2).decode()


def run(name: str, params: dict[str, Any], *, at: str = "", key: str = "", workflow: bool = False) -> str:
    """Return the command that runs a job or a workflow."""
    words = ["mainspring", *(["workflows"] if workflow and not at else []), "run", name]
    for param, value in params.items():
        words += ["-p", f"{param}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"]
    words += [*(["--at", at] if at else []), *(["--key", key] if key else [])]
    return shlex.join(words)


def without_defaults(spec: JobSpec) -> dict[str, Any]:
    """Return the definition as JSON without default values."""
    values: dict[str, Any] = manifest.without_defaults(spec)
    return values
