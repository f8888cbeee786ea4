"""Crontabs: of a user, and of the system with a user on each line. The rules are those of Vixie cron and cronie."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from mainspring.domain.job import Misfire
from mainspring.importers.build import NO_RETRIES, build_job, shell_task
from mainspring.importers.names import Names, name_of_command, name_of_comment
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported, check_size
from mainspring.importers.rules.days import DayRule
from mainspring.importers.rules.field_sets import MONTHS, SUNDAY_0, FieldError, FieldKind, FieldSet, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, write_schedule

MAX_LINE_CHARS = 100_000
KINDS = (
    FieldKind("minute", 0, 59, open_steps=False),
    FieldKind("hour", 0, 23, open_steps=False),
    FieldKind("day of month", 1, 31, open_steps=False),
    FieldKind("month", 1, 12, MONTHS, open_steps=False),
    FieldKind("day of week", 0, 7, SUNDAY_0, open_steps=False),
)
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every_minute": "* * * * *",
}
_SETTING = re.compile(r"""[ \t]*+(?:"([^"]*+)"|'([^']*+)'|([A-Za-z_][A-Za-z0-9_]*+))[ \t]*+=[ \t]*+(.*)\Z""", re.DOTALL)
_POSIX_SHELLS = {"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox"}
_END = "MAINSPRING_STDIN_END"
_MAIL = ("MAILTO", "MAILFROM")
_WHO = ("LOGNAME", "USER", "USERNAME")


@dataclass(slots=True)
class _State:
    """Settings above the current line, and the comment that belongs to the next entry."""

    env: dict[str, str] = field(default_factory=dict)
    zone: str | None = None
    shell: str = "/bin/sh"
    delay_minutes: int = 0
    comment: list[str] = field(default_factory=list)


def read_crontab(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read crontabs into a plan."""
    plan, names = Plan("crontab"), Names(options.prefix)
    for file in files:
        check_size(file)
        _read_file(plan, names, file, options)
    return plan


def _read_file(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    state = _State()
    for number, line in enumerate(file.text.split("\n"), start=1):
        text = line.strip(" \t\r")
        if not text:
            state.comment = []
        elif text.startswith("#"):
            state.comment.append(text.lstrip("# \t")[:200])
        elif len(line) > MAX_LINE_CHARS:
            plan.find(
                "unsupported", file.name, number, "", "the line is too long", "put the command into a script file"
            )
        elif (setting := _SETTING.match(text)) is not None:
            _set(plan, file, number, state, setting)
            state.comment = []
        else:
            _read_line(plan, names, file, number, text, state, options)
            state.comment = []


def _set(plan: Plan, file: SourceFile, line: int, state: _State, setting: re.Match[str]) -> None:
    name, value = setting[1] or setting[2] or setting[3] or "", _unquoted(setting[4])
    if name in _MAIL:
        if value:
            hint = "create a channel with: mainspring channels, and notify it with: mainspring jobs edit NAME --notify"
            plan.find("dropped", file.name, line, "", f"{name}={value}: output is not mailed", hint)
    elif name in ("CRON_TZ", "CRON_TIMEZONE"):
        state.zone = value or None
    elif name == "SHELL":
        state.shell = value
    elif name == "RANDOM_DELAY":
        state.delay_minutes = int(value) if value.isascii() and value.isdecimal() and len(value) < 5 else 0
    elif name == "START_HOURS_RANGE":
        plan.find("dropped", file.name, line, "", f"{name} is not carried over", "it applies to anacron jobs only")
    elif name in _WHO:
        plan.find(
            "dropped", file.name, line, "", f"{name}: the worker's user runs the jobs", "start a worker as that user"
        )
    else:
        state.env[name] = value


def _read_line(
    plan: Plan, names: Names, file: SourceFile, line: int, text: str, state: _State, options: ReadOptions
) -> None:
    entry = text[:60]
    try:
        schedule_text, rest = _split(text)
        user = None
        if options.system:
            user, rest = _next_word(rest)
        command, stdin = split_percent(rest.strip())
        comment = state.comment[0] if len(state.comment) == 1 else ""
        entry = name_of_comment(comment) or name_of_command(command)
        rule = read_rule(schedule_text, _zone(state, options), is_own_zone=_is_own_zone(state, options))
        schedule = write_schedule(rule)
        if state.delay_minutes:
            schedule = msgspec.structs.replace(schedule, jitter=f"{min(state.delay_minutes, 1440)}m")
        task = shell_task(
            _with_stdin(command, stdin, state.shell), shell=state.shell, env=dict(state.env), cwd=state.env.get("HOME")
        )
        name = names.take(entry)
        spec = build_job(
            plan,
            options,
            name=name,
            task=task,
            schedule=schedule,
            description="\n".join(state.comment),
            overlap="allow",
            misfire=Misfire(policy="skip"),
            retries=NO_RETRIES,
            timeout=options.timeout,
        )
        plan.add(Entry(file.name, line, spec, rule, schedule_text))
        if user is not None:
            hint = f"start a worker as {user} with --labels user={user}, and import with --labels user={user}"
            plan.find("dropped", file.name, line, name, f"the user {user}: the worker's user runs the job", hint)
    except Unsupported as error:
        plan.find("unsupported", file.name, line, entry, error.message, error.hint)
    except FieldError as error:
        plan.find("unsupported", file.name, line, entry, str(error), "correct the line, or remove it")


def read_rule(text: str, zone: str, *, is_own_zone: bool = False) -> WallRule:
    """When cron fires for a schedule.

    A star in minute or hour makes it follow the wall clock. Other jobs are made up for right after a skipped hour, and
    run in the first pass of a repeated one. cron sees clock changes only of the machine's zone: with a zone of its own
    (`CRON_TZ`), every job follows the wall clock.
    """
    fields = MACROS.get(text.lower(), text).split()
    if len(fields) != 5:
        raise Unsupported("a line has five fields and a command", "write for example: 0 2 * * * /usr/bin/backup")
    minute, hour, day, month, weekday = (read_field(text, kind) for text, kind in zip(fields, KINDS, strict=True))
    follows_clock = is_own_zone or minute.starred or hour.starred
    return WallRule(
        minutes=minute.numbers,
        hours=hour.numbers,
        days=day_rule(day, month, weekday, either=not (day.starred or weekday.starred)),
        zone=zone,
        gap="skip" if follows_clock else "after",
        passes="both" if follows_clock else "first",
    )


def day_rule(day: FieldSet, month: FieldSet, weekday: FieldSet, *, either: bool) -> DayRule:
    """The days of three fields; Sunday is 0 or 7."""
    weekdays = frozenset(number % 7 for number in weekday.numbers)
    return DayRule(day.numbers, weekdays, month.numbers, either=either)


def split_percent(text: str) -> tuple[str, str | None]:
    """The command and its standard input: after the first percent sign, every further one begins a line."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text)]
    return parts[0].strip(), "\n".join(parts[1:]) if len(parts) > 1 else None


def _with_stdin(command: str, stdin: str | None, shell: str) -> str:
    if stdin is None:
        return command
    if shell.rpartition("/")[2] not in _POSIX_SHELLS:
        hint = "write the input to a file and redirect it"
        raise Unsupported(f"standard input after % needs a POSIX shell, not {shell[:60]}", hint)
    if _END in stdin:
        raise Unsupported(f"the input contains {_END}", "write the input to a file and redirect it")
    return f"{{\n{command}\n}} <<'{_END}'\n{stdin}\n{_END}"


def _split(text: str) -> tuple[str, str]:
    """The schedule of a line and what follows it."""
    if text.startswith("@"):
        macro, rest = _next_word(text)
        if macro.lower() == "@reboot":
            hint = "start it with the machine: a systemd unit, or the entry point of its container"
            raise Unsupported("@reboot has no time: Mainspring does not see machines start", hint)
        if macro.lower() not in MACROS:
            raise Unsupported(f"unknown schedule {macro[:40]!r}", "write five fields or @daily")
        return macro, rest
    if text.startswith("-"):
        text = text[1:].lstrip()
    words, rest = [], text
    for _ in range(5):
        word, rest = _next_word(rest)
        words.append(word)
    if any("~" in word for word in words):
        hint = "write H, such as H(0-59): a fixed value derived from the name of the job"
        raise Unsupported("a random value (~) is chosen when cron starts", hint)
    return " ".join(words), rest


def _next_word(text: str) -> tuple[str, str]:
    words = text.split(None, 1)
    if not words:
        raise Unsupported("a line has five fields and a command", "write for example: 0 2 * * * /usr/bin/backup")
    return words[0], words[1] if len(words) > 1 else ""


def _unquoted(value: str) -> str:
    value = value.strip(" \t\r")
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _zone(state: _State, options: ReadOptions) -> str:
    return check_zone(state.zone or options.timezone)


def _is_own_zone(state: _State, options: ReadOptions) -> bool:
    return state.zone is not None and check_zone(state.zone) != check_zone(options.timezone)
