"""systemd timers and the services that they start, from their unit files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.domain.job import Misfire, ShellTask
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.importers.build import NO_RETRIES, build_job, check_command
from mainspring.importers.names import Names
from mainspring.importers.on_calendar import read_rule
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported, check_size
from mainspring.importers.rules.elapsed import ElapsedRule, SourceRule, TogetherRule
from mainspring.importers.rules.field_sets import FieldError
from mainspring.importers.schedule_writer import write_schedule

MAX_EXEC_CHARS = 10_000
MAX_SETTINGS = 20_000
MAX_CALENDARS = 50
_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)[ \t]*([A-Za-zµ]*)[ \t]*", re.ASCII)
_UNITS = {
    **dict.fromkeys(("usec", "us", "µs"), 1e-6), **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0), **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0), **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("M", "month", "months"), 2_629_800.0), **dict.fromkeys(("y", "year", "years"), 31_557_600.0),
}  # fmt: skip
_TRUE = ("1", "yes", "y", "true", "t", "on")
_TIMER_KEYS = {
    "OnCalendar", "OnUnitActiveSec", "OnBootSec", "OnStartupSec", "OnActiveSec", "Persistent", "RandomizedDelaySec",
    "FixedRandomDelay", "AccuracySec", "Unit", "WakeSystem", "RemainAfterElapse", "OnClockChange", "OnTimezoneChange",
}  # fmt: skip
_SERVICE_KEYS = {
    "Type", "ExecStart", "User", "Group", "Environment", "WorkingDirectory", "TimeoutStartSec", "TimeoutSec",
    "RuntimeMaxSec", "SyslogIdentifier", "StandardOutput", "StandardError", "RemainAfterExit", "KillMode",
}  # fmt: skip
_HINTS = {
    "EnvironmentFile": "set the variables for the worker and pass them on with --pass-env",
    "Nice": "set a priority with: mainspring jobs edit NAME --priority",
    "OnFailure": "use a notification channel: mainspring jobs edit NAME --notify",
    "Restart": "set retries with: mainspring jobs edit NAME --retries",
}
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of a unit file."""

    section: str
    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit file: its settings in order."""

    file: SourceFile
    name: str
    settings: tuple[Setting, ...]

    def all(self, section: str, key: str) -> list[Setting]:
        """The values of a key; an empty value resets those before it."""
        found: list[Setting] = []
        for setting in self.settings:
            if setting.section == section and setting.key == key:
                found.append(setting)
                if not setting.value:
                    found.clear()
        return found

    def last(self, section: str, key: str) -> Setting | None:
        found = self.all(section, key)
        return found[-1] if found else None


def read_systemd(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read timers into a plan; their services are looked for among the files."""
    plan, names = Plan("systemd"), Names(options.prefix)
    units: dict[str, Unit] = {}
    for file in files:
        check_size(file)
        unit = _read_unit(plan, file)
        units[unit.name] = unit
    for unit in units.values():
        if unit.name.endswith(".timer"):
            _read_timer(plan, names, unit, units, options)
    return plan


def _read_unit(plan: Plan, file: SourceFile) -> Unit:
    settings: list[Setting] = []
    section, pending, begin = "", "", 0
    for number, raw in enumerate(file.text.split("\n"), start=1):
        text = raw.strip()
        if not pending and (not text or text[0] in "#;"):
            continue
        if pending and text[:1] in ("#", ";"):
            continue
        begin = number if not pending else begin
        if text.endswith("\\") and len(pending) < MAX_EXEC_CHARS:
            pending += text[:-1] + " "
            continue
        text, pending = pending + text, ""
        if text.startswith("["):
            section = text.strip("[]")[:64]
            continue
        key, equals, value = text.partition("=")
        if equals and len(settings) < MAX_SETTINGS:
            settings.append(Setting(section, key.strip()[:64], value.strip(), begin))
    return Unit(file, file.name.rpartition("/")[2], tuple(settings))


def _read_timer(plan: Plan, names: Names, unit: Unit, units: Mapping[str, Unit], options: ReadOptions) -> None:
    base, file = unit.name.removesuffix(".timer"), unit.file.name
    try:
        if "@" in base:
            raise Unsupported("template units have no fixed name", "import an instance as a unit of its own", 1)
        rule, schedule, text, line = _schedule(unit, options)
        wanted = unit.last("Timer", "Unit")
        service = units.get(wanted.value if wanted else f"{base}.service")
        if service is None:
            missing = wanted.value if wanted else f"{base}.service"
            hint = "give the service file together with the timer"
            raise Unsupported(f"{missing[:80]} is not among the files", hint, wanted.line if wanted else 1)
        name = names.take(base)
        try:
            task, timeout = _task(plan, service, name), _timeout(service)
        except Unsupported as error:
            raise Unsupported(error.message, error.hint, error.line, service.file.name) from None
        persistent = unit.last("Timer", "Persistent")
        is_persistent = persistent is not None and persistent.value.lower() in _TRUE
        spec = build_job(
            plan,
            options,
            name=name,
            task=task,
            schedule=_with_delay(unit, schedule),
            description=_description(unit, service),
            overlap="skip",
            misfire=Misfire(policy="latest" if is_persistent else "skip"),
            retries=NO_RETRIES,
            timeout=timeout or options.timeout,
        )
        for setting in unit.settings:
            if setting.section == "Timer" and setting.key not in _TIMER_KEYS:
                plan.find("dropped", file, setting.line, name, f"{setting.key} is not carried over", "")
        plan.add(Entry(file, line, spec, rule, text))
    except Unsupported as error:
        plan.find("unsupported", error.file or file, error.line or 1, base, error.message, error.hint)


def _schedule(unit: Unit, options: ReadOptions) -> tuple[SourceRule, ScheduleSpec | list[ScheduleSpec], str, int]:
    calendars, active = unit.all("Timer", "OnCalendar"), unit.last("Timer", "OnUnitActiveSec")
    for key in ("OnUnitInactiveSec", "OnClockChange", "OnTimezoneChange"):
        setting = unit.last("Timer", key)
        if setting is not None and (key == "OnUnitInactiveSec" or setting.value.lower() in _TRUE):
            hint = "use OnCalendar or OnUnitActiveSec: a schedule does not depend on when a run ended"
            raise Unsupported(f"{key} cannot be expressed", hint, setting.line)
    if calendars and active:
        raise Unsupported("OnCalendar and OnUnitActiveSec together cannot be expressed", "make two timers", active.line)
    if active:
        seconds = _span(active)
        if not 1 <= seconds <= 50 * 366 * 86_400:
            raise Unsupported(
                f"OnUnitActiveSec={active.value[:40]} is out of range", "use 1 second or more", active.line
            )
        every = round(seconds * 1000)
        spec = ScheduleSpec(every=every // 1000 if every % 1000 == 0 else every / 1000)
        return ElapsedRule(every), spec, f"OnUnitActiveSec={active.value}", active.line
    if not calendars:
        hint = "use OnCalendar: Mainspring does not see machines start"
        raise Unsupported("the timer has no recurring time", hint, 1)
    if len(calendars) > MAX_CALENDARS:
        raise Unsupported(f"more than {MAX_CALENDARS} OnCalendar lines", "make several timers", calendars[0].line)
    rules = []
    for setting in calendars:
        try:
            rules.append(read_rule(setting.value, options.timezone))
        except FieldError as error:
            raise Unsupported(f"OnCalendar={setting.value[:60]}: {error}", "correct the line", setting.line) from None
        except Unsupported as error:
            raise Unsupported(error.message, error.hint, setting.line) from None
    specs = [write_schedule(rule) for rule in rules]
    text = "; ".join(setting.value for setting in calendars)
    if len(rules) == 1:
        return rules[0], specs[0], text, calendars[0].line
    return TogetherRule(tuple(rules)), specs, text, calendars[0].line


def _with_delay(unit: Unit, schedule: Any) -> Any:
    delay = unit.last("Timer", "RandomizedDelaySec")
    if delay is None or (seconds := _span(delay)) == 0:
        return schedule
    if seconds > 86_400:
        raise Unsupported("RandomizedDelaySec is longer than a day", "use at most 24h", delay.line)
    jitter = f"{round(seconds * 1000)}ms"
    if isinstance(schedule, list):
        return [msgspec.structs.replace(spec, jitter=jitter) for spec in schedule]
    return msgspec.structs.replace(schedule, jitter=jitter)


def _task(plan: Plan, service: Unit, name: str) -> ShellTask:
    file = service.file.name
    commands = service.all("Service", "ExecStart")
    if not commands:
        raise Unsupported(f"{service.name} has no ExecStart", "add the command", 1)
    env = _environment(service)
    for setting in service.settings:
        if setting.section == "Service" and setting.key not in _SERVICE_KEYS:
            hint = _HINTS.get(setting.key, "check whether the job needs it")
            plan.find("dropped", file, setting.line, name, f"{setting.key} is not carried over", hint)
    user = service.last("Service", "User")
    if user is not None:
        hint = f"start a worker as {user.value} with --labels user={user.value}, and import with --labels"
        plan.find("dropped", file, user.line, name, f"the user {user.value}: the worker's user runs the job", hint)
    folder = service.last("Service", "WorkingDirectory")
    cwd = folder.value.lstrip("-") if folder is not None and folder.value.lstrip("-").startswith("/") else None
    if folder is not None and cwd is None:
        plan.find("dropped", file, folder.line, name, f"WorkingDirectory={folder.value} has no fixed path", "")
    lines = [_command(plan, file, name, setting, env) for setting in commands]
    if len(lines) == 1:
        return ShellTask(argv=tuple(lines[0]), env=env, cwd=cwd)
    return ShellTask(argv=(" && ".join(shlex.join(words) for words in lines),), shell=True, env=env, cwd=cwd)


def _command(plan: Plan, file: str, name: str, setting: Setting, env: dict[str, str]) -> list[str]:
    text = setting.value
    prefixes = text[: len(text) - len(text.lstrip("-@:+!"))]
    text = text[len(prefixes) :]
    if len(text) > MAX_EXEC_CHARS:
        raise Unsupported("ExecStart is too long", "put the command into a script file", setting.line)
    if "@" in prefixes:
        raise Unsupported("ExecStart with @ sets the name of the process", "call the program plainly", setting.line)
    if "-" in prefixes:
        message = "ExecStart with - ignores failures; here a failure is one"
        plan.find("dropped", file, setting.line, name, message, "run it by a shell with: || true")
    for match in re.finditer(r"%(.?)", text):
        if match[1] != "%":
            raise Unsupported(f"the specifier %{match[1]} has no value here", "write its value", setting.line)
    try:
        words = [word.replace("%%", "%") for word in shlex.split(text)]
    except ValueError as error:
        raise Unsupported(f"ExecStart cannot be read: {error}", "check the quotes", setting.line) from None
    if any(word == ";" for word in words):
        raise Unsupported("several commands in one ExecStart", "write one ExecStart per command", setting.line)
    try:
        check_command(text)
    except Unsupported as error:
        raise Unsupported(error.message, error.hint, setting.line) from None
    return words if ":" in prefixes else [_expanded(word, env, setting) for word in words]


def _expanded(word: str, env: dict[str, str], setting: Setting) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in env:
            hint = "run the command by a shell: /bin/sh -c 'command $NAME'"
            raise Unsupported(f"the variable {name[:40]} of ExecStart is not set in the unit", hint, setting.line)
        return env[name]

    # A shell expands its own variables: systemd writes them as $$.
    return _VARIABLE.sub(value, word.replace("$$", "\0")).replace("\0", "$")


def _environment(service: Unit) -> dict[str, str]:
    env: dict[str, str] = {}
    for setting in service.all("Service", "Environment"):
        try:
            words = shlex.split(setting.value[:MAX_EXEC_CHARS])
        except ValueError as error:
            raise Unsupported(f"Environment cannot be read: {error}", "check the quotes", setting.line) from None
        for word in words:
            key, equals, value = word.partition("=")
            if equals:
                env[key] = value.replace("%%", "%")
    return env


def _timeout(service: Unit) -> str | None:
    for key in ("TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec"):
        setting = service.last("Service", key)
        if setting is not None and setting.value.lower() not in ("infinity", "0"):
            return f"{_span(setting):g}s"
    return None


def _description(unit: Unit, service: Unit) -> str:
    found = service.last("Unit", "Description") or unit.last("Unit", "Description")
    return found.value if found is not None else ""


def _span(setting: Setting) -> float:
    """A time span in seconds: `5min`, `1h 30min`, `90`."""
    text, at, seconds = setting.value.strip()[:100], 0, 0.0
    while at < len(text):
        part = _SPAN.match(text, at)
        if part is None or part[2] not in _UNITS or part.end() == at:
            raise Unsupported(f"{setting.key}={text[:40]} is not a time span", "write for example 5min", setting.line)
        seconds += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    return seconds
