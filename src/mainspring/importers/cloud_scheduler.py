"""Google Cloud Scheduler jobs, from the YAML or JSON that `gcloud scheduler jobs list` prints."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, get_args

from mainspring.domain.job import Misfire, ShellTask, Task
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.task import HttpTask, Method
from mainspring.importers.build import build_job, check_command
from mainspring.importers.crontab import MACROS, day_rule
from mainspring.importers.located import Items, Mapping, line_of, read_json, read_yaml
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.rules.field_sets import MONTHS, SUNDAY_0, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, write_schedule

KINDS = (
    FieldKind("minute", 0, 59),
    FieldKind("hour", 0, 23),
    FieldKind("day of month", 1, 31),
    FieldKind("month", 1, 12, MONTHS),
    FieldKind("day of week", 0, 7, SUNDAY_0),
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s\Z")


def read_cloud_scheduler(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read exported jobs into a plan."""
    plan, names = Plan("cloud-scheduler"), Names(options.prefix)
    for file in files:
        is_json = file.text.lstrip()[:1] in ("{", "[")
        documents = [read_json(file)] if is_json else read_yaml(file)
        for document in documents:
            if isinstance(document, Mapping) and isinstance(document.get("jobs"), Items):
                document = document["jobs"]
            for entry in document if isinstance(document, Items) else [document]:
                if isinstance(entry, Mapping):
                    _read(plan, names, file, entry, options)
    return plan


def _read(plan: Plan, names: Names, file: SourceFile, entry: Mapping, options: ReadOptions) -> None:
    name = str(entry.get("name", "job")).rpartition("/")[2]
    try:
        text = entry.get("schedule")
        if not isinstance(text, str):
            raise Unsupported("the job has no schedule", "export the whole job")
        rule = read_rule(text, check_zone(str(entry.get("timeZone") or "Etc/UTC")), entry.line_of("schedule"))
        taken = names.take(name)
        spec = build_job(
            plan,
            options,
            name=taken,
            task=_task(plan, file, taken, entry),
            schedule=write_schedule(rule),
            description=str(entry.get("description") or ""),
            overlap="skip",
            misfire=Misfire(policy="skip"),
            retries=_retries(entry.get("retryConfig")),
            timeout=_duration(entry.get("attemptDeadline")) or "180s",
            paused=entry.get("state") in ("PAUSED", "DISABLED"),
        )
        plan.add(Entry(file.name, line_of(entry), spec, rule, text))
    except Unsupported as error:
        plan.find("unsupported", file.name, error.line or line_of(entry), name, error.message, error.hint)


def read_rule(text: str, zone: str, line: int | None = None) -> WallRule:
    """When Cloud Scheduler fires: by the wall clock, twice in a repeated hour and not in a skipped one."""
    words = MACROS.get(text, text).split()
    if len(words) != 5:
        hint = "write five fields: App Engine's English-like schedules are not read"
        raise Unsupported(f"{text[:60]!r} does not have five fields", hint, line)
    try:
        fields = [read_field(word, kind) for word, kind in zip(words, KINDS, strict=True)]
    except FieldError as error:
        raise Unsupported(str(error), "correct the schedule", line) from None
    minute, hour, day, month, weekday = fields
    days = day_rule(day, month, weekday, either=not (day.starred or weekday.starred))
    return WallRule(minute.numbers, hour.numbers, days, zone=zone, gap="skip", passes="both")


def _task(plan: Plan, file: SourceFile, name: str, entry: Mapping) -> Task:
    http, pubsub = entry.get("httpTarget"), entry.get("pubsubTarget")
    if isinstance(http, Mapping):
        return _http(plan, file, name, http)
    if isinstance(pubsub, Mapping) and isinstance(pubsub.get("topicName"), str):
        message = _decoded(pubsub.get("data")) or "{}"
        words = ("gcloud", "pubsub", "topics", "publish", pubsub["topicName"], f"--message={message}")
        for word in words:
            check_command(word)
        plan.find("note", file.name, line_of(pubsub), name, "publishes by gcloud", "give the worker credentials")
        return ShellTask(argv=words)
    hint = "add the job by hand with the URL that it calls"
    raise Unsupported("the target is neither HTTP nor Pub/Sub", hint)


def _http(plan: Plan, file: SourceFile, name: str, http: Mapping) -> HttpTask:
    for key in ("oidcToken", "oauthToken"):
        if http.get(key):
            message, hint = f"{key} is not carried over", "send a header with a credential that does not expire"
            plan.find("dropped", file.name, http.line_of(key), name, message, hint)
    method = str(http.get("httpMethod", "POST"))
    if method not in get_args(Method):
        raise Unsupported(f"the method {method[:20]} is not known", "use GET or POST", http.line_of("httpMethod"))
    headers = http.get("headers")
    given = {str(k): str(v) for k, v in headers.items()} if isinstance(headers, Mapping) else {}
    kept = {key: value for key, value in given.items() if key.lower() not in ("user-agent", "content-length", "host")}
    return HttpTask(
        url=str(http.get("uri", "")),
        method=method,  # type: ignore[arg-type]  # checked above
        headers=kept,
        body=_decoded(http.get("body")),
    )


def _decoded(given: Any) -> str | None:
    if not isinstance(given, str):
        return None
    try:
        return base64.b64decode(given, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise Unsupported("the body is not text in base64", "add the job by hand") from None


def _retries(given: Any) -> RetryPolicy:
    if not isinstance(given, Mapping):
        return RetryPolicy(max=0)
    count = given.get("retryCount", 0)
    base = _duration(given.get("minBackoffDuration")) or "5s"
    cap = _duration(given.get("maxBackoffDuration")) or "1h"
    return RetryPolicy(
        max=count if isinstance(count, int) and 0 <= count <= 1000 else 0, base=base, cap=cap, jitter="none"
    )


def _duration(given: Any) -> str | None:
    return given if isinstance(given, str) and _SECONDS.match(given) and float(given[:-1]) > 0 else None
