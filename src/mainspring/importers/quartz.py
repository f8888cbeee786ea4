"""Quartz schedules: `quartz_data.xml` with cron triggers, or a text with one expression per line."""

from __future__ import annotations

import re
from xml.parsers import expat

from mainspring.domain.errors import Invalid
from mainspring.domain.job import Misfire, NoopTask, Task
from mainspring.importers.build import NO_RETRIES, build_job, shell_task
from mainspring.importers.names import Names, name_of_command
from mainspring.importers.plan import MAX_DEPTH, Entry, Plan, ReadOptions, SourceFile, Unsupported, check_size
from mainspring.importers.quartz_cron import read_quartz
from mainspring.importers.rules.field_sets import FieldError
from mainspring.importers.schedule_writer import check_zone, write_schedule

MAX_LINE_CHARS = 100_000
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99})[ \t]{0,8}[=:][ \t]{0,8}(.*)\Z", re.DOTALL)


def read_quartz_file(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read Quartz triggers into a plan."""
    plan, names = Plan("quartz"), Names(options.prefix)
    for file in files:
        check_size(file)
        if file.text.lstrip("\ufeff \t\r\n").startswith("<"):
            _read_xml(plan, names, file, options)
        else:
            _read_lines(plan, names, file, options)
    return plan


def _read_lines(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    """Lines such as `nightly = 0 0 2 * * ? -- /usr/bin/backup`; name and command are optional."""
    for number, line in enumerate(file.text.split("\n"), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if len(text) > MAX_LINE_CHARS:
            plan.find(
                "unsupported", file.name, number, "", "the line is too long", "put the command into a script file"
            )
            continue
        named = _NAMED.match(text)
        name, text = (named[1], named[2]) if named is not None else ("", text)
        expression, _, command = text.partition(" -- ")
        command = command.strip()
        _read(plan, names, file, number, name or name_of_command(command), expression.strip(), "", command, options)


def _read(
    plan: Plan, names: Names, file: SourceFile, line: int, name: str, expression: str, zone: str, command: str,
    options: ReadOptions, java_class: str = "",
) -> None:  # fmt: skip
    try:
        rule = read_quartz(expression, check_zone(zone or options.timezone))
        taken = names.take(name)
        task: Task = shell_task(command) if command else NoopTask()
        spec = build_job(
            plan,
            options,
            name=taken,
            task=task,
            schedule=write_schedule(rule),
            overlap="allow",
            retries=NO_RETRIES,
            misfire=Misfire(policy="latest"),
            timeout=options.timeout,
            paused=not command,
        )
        if not command:
            what = f"the class {java_class}" if java_class else "an expression without a command"
            hint = f"give it a task with: mainspring jobs edit {taken} -- CMD, and resume it"
            plan.find("dropped", file.name, line, taken, f"{what} cannot be run: created paused, does nothing", hint)
        plan.add(Entry(file.name, line, spec, rule, expression))
    except Unsupported as error:
        plan.find("unsupported", file.name, line, name, error.message, error.hint)
    except FieldError as error:
        plan.find("unsupported", file.name, line, name, str(error), "correct the expression")


def _read_xml(plan: Plan, names: Names, file: SourceFile, options: ReadOptions) -> None:
    reader = _XmlReader(file)
    for trigger in reader.triggers:
        job = trigger.get("job-name", trigger.get("name", "job"))
        zone, line = trigger.get("time-zone", ""), int(trigger["line"])
        java_class = reader.classes.get(job, "")
        expression = trigger.get("cron-expression", "")
        _read(plan, names, file, line, job, expression, zone, "", options, java_class)
    for line, kind in reader.others:
        hint = "write it as a cron trigger, or add the job with --every"
        plan.find("unsupported", file.name, line, kind, f"the trigger kind {kind} is not read", hint)


class _XmlReader:
    """Collects cron triggers and job classes. Document types and entities are refused, nesting is bounded."""

    def __init__(self, file: SourceFile) -> None:
        self.triggers: list[dict[str, str]] = []
        self.classes: dict[str, str] = {}
        self.others: list[tuple[int, str]] = []
        self._file = file
        self._path: list[str] = []
        self._text: list[str] = []
        self._current: dict[str, str] = {}
        self._parser = parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            parser.Parse(file.text.lstrip("\ufeff \t\r\n").encode(errors="replace"), True)
        except expat.ExpatError as error:
            where = f"{file.name}:{error.lineno}"
            raise Invalid(f"{where}: invalid XML: {error}", code="unreadable_source") from None

    def _refuse(self, *_: object) -> None:
        raise Invalid(f"{self._file.name}: a document type is not read: remove <!DOCTYPE>", code="unreadable_source")

    def _start(self, name: str, _: dict[str, str]) -> None:
        if len(self._path) >= MAX_DEPTH:
            raise Invalid(f"{self._file.name}: nested deeper than {MAX_DEPTH} levels", code="unreadable_source")
        self._path.append(name.rpartition(":")[2])
        self._text.clear()
        line = self._parser.CurrentLineNumber
        if name in ("cron", "job"):
            self._current = {"line": str(line)}
        elif name in ("simple", "calendar-interval"):
            self._current = {}
            self.others.append((line, name))

    def _end(self, _: str) -> None:
        name = self._path.pop()
        owner = self._path[-1] if self._path else ""
        text = "".join(self._text).strip()
        self._text.clear()
        if owner in ("cron", "job"):
            self._current[name] = text
        elif name == "cron":
            self.triggers.append(self._current)
        elif name == "job":
            self.classes[self._current.get("name", "")] = self._current.get("job-class", "")
