"""Builds jobs of imported entries: common fields, and the checks that the server would make."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, ShellTask, Task, problems_of
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.spec import ScheduleSpecs
from mainspring.domain.template import places
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.importers.plan import MAX_COMMAND_CHARS, Plan, ReadOptions, Unsupported

NO_RETRIES = RetryPolicy(max=0)
MAX_DESCRIPTION = 1000


def build_job(
    plan: Plan,
    options: ReadOptions,
    *,
    name: str,
    task: Task,
    schedule: ScheduleSpecs | None,
    description: str = "",
    **fields: Any,
) -> JobSpec:
    """A job with the fields that all entries of an import share. Raises Unsupported if the server would refuse it."""
    spec = JobSpec(
        name=name,
        task=task,
        schedule=schedule,
        description=description[:MAX_DESCRIPTION].replace("\0", ""),
        metadata=metadata(plan, options),
        labels=dict(options.labels),
        **fields,
    )
    if problems := problems_of(spec):
        raise Unsupported(problems[0].message, problems[0].hint)
    try:
        msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except msgspec.ValidationError as error:
        raise Unsupported(str(error), "shorten the entry") from None
    return spec


def check_workflow(spec: WorkflowSpec) -> WorkflowSpec:
    """Raise Unsupported if the server would refuse a workflow."""
    try:
        msgspec.convert(msgspec.to_builtins(spec), WorkflowSpec)
        compile_workflow(spec)
    except msgspec.ValidationError as error:
        raise Unsupported(str(error), "shorten the entry") from None
    except Invalid as error:
        raise Unsupported(error.message, error.problems[0].hint if error.problems else "") from None
    return spec


def metadata(plan: Plan, options: ReadOptions) -> dict[str, Any]:
    return {"imported_from": plan.source, **({"owner": options.owner} if options.owner else {})}


def check_command(command: str) -> None:
    """Raise Unsupported for commands that Mainspring cannot keep as they are."""
    if not command.strip():
        raise Unsupported("the command is empty", "write a command, or remove the entry")
    if len(command) > MAX_COMMAND_CHARS:
        hint = "put the command into a script file and call that"
        raise Unsupported(f"the command has more than {MAX_COMMAND_CHARS:,} characters", hint)
    if "\0" in command:
        raise Unsupported("the command contains a NUL character", "remove it")
    if names := places(command):
        shown = names[0][:40]
        hint = "put the command into a script file and call that: {{…}} is a template in Mainspring"
        raise Unsupported(f"the command contains {{{{{shown}}}}}", hint)


def shell_task(
    command: str, *, shell: str = "/bin/sh", env: dict[str, str] | None = None, cwd: str | None = None
) -> ShellTask:
    """A task that runs a command line by a shell."""
    check_command(command)
    if shell == "/bin/sh":
        return ShellTask(argv=(command,), shell=True, env=env or {}, cwd=cwd)
    return ShellTask(argv=(shell, "-c", command), env=env or {}, cwd=cwd)
