"""EventBridge rules and EventBridge Scheduler schedules, from the JSON of the AWS command line."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mainspring.domain.job import Misfire, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.importers.build import build_job, check_command
from mainspring.importers.located import Items, Mapping, line_of, read_json
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.quartz_cron import read_aws
from mainspring.importers.rules.elapsed import ElapsedRule, OnceRule, SourceRule, WindowRule
from mainspring.importers.rules.field_sets import FieldError
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, instant_text, wall_ms, write_schedule

_EXPRESSION = re.compile(r"(cron|rate|at)\(([^()]{0,500})\)\Z")
_RATE = re.compile(r"(\d{1,9}) (minute|minutes|hour|hours|day|days)\Z")
_UNIT_S = {"minute": 60, "hour": 3600, "day": 86_400}
_COMMANDS = {
    "lambda": ("lambda", "invoke", "--cli-binary-format", "raw-in-base64-out", "--function-name", "{arn}",
               "--payload", "{input}", "/dev/stdout"),
    "sqs": ("sqs", "send-message", "--queue-url", "{url}", "--message-body", "{input}"),
    "sns": ("sns", "publish", "--topic-arn", "{arn}", "--message", "{input}"),
    "states": ("stepfunctions", "start-execution", "--state-machine-arn", "{arn}", "--input", "{input}"),
}  # fmt: skip


def read_eventbridge(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read exported rules and schedules into a plan."""
    plan, names = Plan("eventbridge"), Names(options.prefix)
    for file in files:
        root = read_json(file)
        targets = root.get("Targets") if isinstance(root, Mapping) else None
        for entry in _entries(root):
            _read(plan, names, file, entry, targets, options)
    return plan


def _entries(root: Any) -> list[Mapping]:
    if isinstance(root, Mapping):
        listed = next((root[key] for key in ("Rules", "Schedules") if isinstance(root.get(key), Items)), None)
        root = listed if listed is not None else [root]
    return [entry for entry in root if isinstance(entry, Mapping)] if isinstance(root, list) else []


def _read(plan: Plan, names: Names, file: SourceFile, entry: Mapping, targets: Any, options: ReadOptions) -> None:
    name, line = str(entry.get("Name", "rule")), line_of(entry)
    try:
        text = entry.get("ScheduleExpression")
        if not isinstance(text, str):
            hint = "start the job by a webhook or another job" if entry.get("EventPattern") else "export each schedule"
            raise Unsupported("the entry has no ScheduleExpression", hint)
        zone = check_zone(str(entry.get("ScheduleExpressionTimezone") or "UTC"))
        rule, schedule = _schedule(text, zone, entry, options)
        target = entry.get("Target") or _first(entry.get("Targets")) or _first(targets)
        taken = names.take(name)
        retry = target.get("RetryPolicy") if isinstance(target, Mapping) else None
        spec = build_job(
            plan,
            options,
            name=taken,
            task=_task(target),
            schedule=schedule,
            description=str(entry.get("Description") or ""),
            overlap="allow",
            misfire=Misfire(policy="skip"),
            retries=_retries(retry),
            timeout=options.timeout,
            paused=entry.get("State") == "DISABLED",
        )
        plan.find(
            "note", file.name, line, taken, "calls AWS by its command line program", "give the worker credentials"
        )
        if isinstance(target, Mapping) and target.get("DeadLetterConfig"):
            message = "DeadLetterConfig is not carried over"
            plan.find("dropped", file.name, line_of(target), taken, message, "failed executions become dead letters")
        plan.add(Entry(file.name, line, spec, rule, text))
    except Unsupported as error:
        plan.find(
            "unsupported", file.name, error.line or entry.line_of("ScheduleExpression"), name, error.message, error.hint
        )
    except FieldError as error:
        line = entry.line_of("ScheduleExpression")
        plan.find("unsupported", file.name, line, name, str(error), "correct the expression")


def _schedule(text: str, zone: str, entry: Mapping, options: ReadOptions) -> tuple[SourceRule, ScheduleSpec]:
    found = _EXPRESSION.match(text.strip())
    if found is None:
        raise Unsupported(f"{text[:60]!r} is not a schedule", "write cron(…), rate(…) or at(…)")
    kind, inner = found[1], found[2].strip()
    window = {key: _instant(entry.get(name)) for key, name in (("start_at", "StartDate"), ("end_at", "EndDate"))}
    jitter = _jitter(entry.get("FlexibleTimeWindow"))
    base: WallRule | ElapsedRule
    if kind == "at":
        try:
            at = wall_ms(inner[:40], zone)
        except ValueError:
            raise Unsupported(f"at({inner[:40]}) is not a time", "write at(2027-01-31T09:00:00)") from None
        if at <= options.now_ms:
            raise Unsupported(f"at({inner[:40]}) is in the past", "remove the entry")
        return OnceRule(at), ScheduleSpec(at=instant_text(at))
    if kind == "cron":
        base = read_aws(inner, zone)
        spec = write_schedule(base)
    else:
        rate = _RATE.match(inner)
        if rate is None or int(rate[1]) == 0:
            raise Unsupported(f"rate({inner[:40]}) cannot be read", "write for example rate(5 minutes)")
        seconds = int(rate[1]) * _UNIT_S[rate[2].rstrip("s")]
        base = ElapsedRule(seconds * 1000, window["start_at"])
        spec = ScheduleSpec(every=seconds)
    given = {key: instant_text(value) for key, value in window.items() if value is not None}
    spec = msgspec.structs.replace(spec, **given, **({"jitter": jitter} if jitter else {}))
    return (WindowRule(base, window["start_at"], window["end_at"]) if given else base), spec


def _jitter(given: Any) -> str | None:
    minutes = given.get("MaximumWindowInMinutes") if isinstance(given, Mapping) else None
    return f"{minutes}m" if isinstance(minutes, int) and 1 <= minutes <= 1440 else None


def _instant(given: Any) -> int | None:
    if given is None:
        return None
    try:
        return round(given * 1000) if isinstance(given, int | float) else wall_ms(str(given)[:40], "UTC")
    except ValueError:
        raise Unsupported(f"{str(given)[:40]!r} is not a time", "write for example 2027-01-31T09:00:00Z") from None


def _task(target: Any) -> ShellTask:
    if not isinstance(target, Mapping) or not isinstance(target.get("Arn"), str):
        raise Unsupported("the export has no target", "add Targets from: aws events list-targets-by-rule")
    arn = target["Arn"]
    parts = arn.split(":", 5)
    service = parts[2] if len(parts) == 6 else ""
    if service not in _COMMANDS:
        hint = "add the job by hand with the command that starts it"
        raise Unsupported(f"the target {arn[:80]} has no counterpart", hint, target.line_of("Arn"))
    url = f"https://sqs.{parts[3]}.amazonaws.com/{parts[4]}/{parts[5]}" if len(parts) == 6 else ""
    values = {"{arn}": arn, "{input}": str(target.get("Input") or "{}"), "{url}": url}
    words = ["aws", *(values.get(word, word) for word in _COMMANDS[service])]
    for word in words:
        check_command(word)
    return ShellTask(argv=tuple(words))


def _retries(given: Any) -> RetryPolicy:
    count = given.get("MaximumRetryAttempts") if isinstance(given, Mapping) else None
    return RetryPolicy(max=min(count, 1000) if isinstance(count, int) and count >= 0 else 3)


def _first(listed: Any) -> Any:
    return listed[0] if isinstance(listed, Items) and listed else None
