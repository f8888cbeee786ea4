"""The compiled workflow: numbered steps, their needs and dependents, and their inputs. Pure.

Validation happens here, when the workflow is saved: cycles are named, and references to steps that do not run before
are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import MAX_PROBLEMS, Invalid, Problem
from mainspring.domain.job import JobSpec, NoopTask, Task, problems_of, splicing_problems
from mainspring.domain.limit import depends_on_params
from mainspring.domain.suggestion import closest
from mainspring.domain.workflow import condition, inputs
from mainspring.domain.workflow.lint import lint_step
from mainspring.domain.workflow.spec import (
    MOST_EDGES,
    MOST_EXPRESSION_CHARS,
    MOST_TEMPLATES,
    STEP_NAME,
    Step,
    Wait,
    WorkflowSpec,
    job_of,
    step_job,
)
from mainspring.domain.workflow.wait import wait_problems

SHOWN_OF_CYCLE = 20
BLOCK = 2048
"""How many steps that others read are looked for at once."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step, numbered in the order of the spec."""

    number: int
    name: str
    spec: Step
    needs: tuple[int, ...]
    job: JobSpec | None  # for a task step: the definition of its executions
    inputs: dict[str, Any]  # the params of its executions, as templates over the run
    reads: frozenset[int]  # steps whose outcome it reads

    @property
    def expressions(self) -> list[str]:
        """Its conditions."""
        return [text for _, text in _expressions(self.spec)]


@dataclass(frozen=True)
class Plan:
    """A valid workflow."""

    spec: WorkflowSpec
    steps: tuple[PlanStep, ...]

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.steps]
        for step in self.steps:
            for parent in step.needs:
                found[parent].append(step.number)
        return tuple(map(tuple, found))

    @cached_property
    def by_name(self) -> dict[str, int]:
        return {step.name: step.number for step in self.steps}

    @cached_property
    def wanted(self) -> frozenset[int]:
        """Steps whose result another step reads, so the run stores it."""
        ends = {self.by_name[name] for name in inputs.steps_in(self.spec.outputs)}
        return frozenset(ends.union(*(step.reads for step in self.steps)))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Topological order; ties keep the order of the spec."""
        return topological([step.needs for step in self.steps])

    def is_end(self, number: int) -> bool:
        return not self.children[number]


def topological(needs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Topological order by Kahn's algorithm, O(V+E). Steps in or behind a cycle are left out."""
    children: list[list[int]] = [[] for _ in needs]
    unmet = [len(parents) for parents in needs]
    for child, parents in enumerate(needs):
        for parent in parents:
            children[parent].append(child)
    order = [step for step, n in enumerate(unmet) if n == 0]
    for step in order:
        for child in children[step]:
            unmet[child] -= 1
            if unmet[child] == 0:
                order.append(child)
    return tuple(order)


def order_of(spec: WorkflowSpec) -> list[str]:
    """The topological order of a valid workflow, without the cost of compiling a plan."""
    names = list(spec.steps)
    numbers = {name: number for number, name in enumerate(names)}
    return [names[n] for n in topological([[numbers[need] for need in step.needs] for step in spec.steps.values()])]


def compile_workflow(spec: WorkflowSpec) -> Plan:
    """Compile a workflow, or raise Invalid with all its problems."""
    _check_size(spec)
    problems = list(islice(_problems(spec), MAX_PROBLEMS))
    if problems:
        code = "cycle" if any("cycle" in p.message for p in problems) else "invalid"
        raise Invalid(problems[0].message, code=code, problems=tuple(problems))
    return plan_of(spec)


def plan_of(spec: WorkflowSpec) -> Plan:
    """Compile a workflow that was validated when it was saved."""
    numbers = {name: number for number, name in enumerate(spec.steps)}
    return Plan(spec, tuple(_plan_step(spec, numbers, name, step) for name, step in spec.steps.items()))


def _plan_step(spec: WorkflowSpec, numbers: dict[str, int], name: str, step: Step) -> PlanStep:
    job, taken = None, dict(step.params)
    if step.task is not None:
        task, taken = inputs.inputs_of(step.task)
        job = step_job(spec, name, step, task)
    reads = frozenset(numbers[n] for n in reads_of(step))
    return PlanStep(numbers[name], name, step, tuple(numbers[n] for n in step.needs), job, taken, reads)


def reads_of(step: Step) -> set[str]:
    """The steps whose outcome a step reads, in templates and expressions."""
    if isinstance(step.task, NoopTask) and not step.params and next(_expressions(step), None) is None:
        return set()
    task = _templates_of(step.task)
    found = inputs.steps_in(task) | inputs.steps_in(step.params) | inputs.steps_in(_wait(step))
    found |= inputs.steps_in(_message(step))
    for _, text in _expressions(step):
        found |= condition.steps_named(text)
    if inputs.reads_upstream([task, step.params, *(text for _, text in _expressions(step))]):
        found.update(step.needs)
    return found


def _templates_of(task: Task | None) -> Any:
    """The values of a task, if it has a template: of a large task they take a hundred times longer than its text."""
    return msgspec.to_builtins(task) if b"{{" in msgspec.json.encode(task) else None


def _message(step: Step) -> str:
    return "" if step.approval is None else step.approval.message


def _wait(step: Step) -> dict[str, Any]:
    """The parts of a wait that may be templates."""
    return {} if step.waits is None else {"for": step.waits.for_, "until": step.waits.until}


def _expressions(step: Step) -> Iterator[tuple[str, str]]:
    if step.when is not None:
        yield "when", step.when
    if step.map is not None:
        yield "map", step.map
    if step.repeat is not None:
        yield "repeat/until", step.repeat.until


def _problems(spec: WorkflowSpec) -> Iterator[Problem]:
    yield from problems_of(job_of(spec))
    for pointer, value in (("/timeout", spec.timeout), ("/sla", spec.sla)):
        yield from _duration_problems(pointer, value)
    for name, step in spec.steps.items():
        at = f"/steps/{name}"
        if not STEP_NAME.match(name):
            yield Problem(at, f"{name!r} is not a step name", "letters, digits and '_', not a digit first; at most 63")
        yield from _kind_problems(at, step)
        yield from _need_problems(at, name, step, spec.steps)
        yield from _extra_problems(at, step)
        for field, text in _expressions(step):
            if wrong := condition.condition_problem(text):
                yield Problem(f"{at}/{field}", wrong, "such as steps.extract.result.rows > 0")
        yield from _param_problems(at, step, spec)
        yield from lint_step(at, step, spec)
    yield from list(_graph_problems(spec)) or _task_problems(spec)


def _check_size(spec: WorkflowSpec) -> None:
    """Raise Invalid for a workflow that is too large to be checked further."""
    if (edges := sum(len(step.needs) for step in spec.steps.values())) > MOST_EDGES:
        message = f"the steps have {edges:,} needs together; at most {MOST_EDGES:,} are accepted"
        raise _too_large("/steps", message, "add a step that others need in place of many")
    texts = {text for step in spec.steps.values() for _, text in _expressions(step)}
    if (characters := sum(map(len, texts))) > MOST_EXPRESSION_CHARS:
        message = f"the expressions have {characters:,} characters together; at most {MOST_EXPRESSION_CHARS:,}"
        raise _too_large("/steps", message, "shorten them")
    if (count := msgspec.json.encode(spec).count(b"{{")) > MOST_TEMPLATES:
        message = f"the workflow has {count:,} templates; at most {MOST_TEMPLATES:,} are accepted"
        raise _too_large("/steps", message, "pass a list as one value, such as {{params.names}}")


def _too_large(pointer: str, message: str, hint: str) -> Invalid:
    return Invalid(message, problems=(Problem(pointer, message, hint),))


def _kind_problems(at: str, step: Step) -> Iterator[Problem]:
    hint = "one of task, workflow, approval, event and wait"
    if not step.kinds:
        yield Problem(at, "the step has no action", f"give it {hint}")
    elif len(step.kinds) > 1:
        yield Problem(at, f"the step has several actions: {' and '.join(step.kinds)}", hint)
    elif step.kind not in ("task", "workflow"):
        for field in ("map", "repeat"):
            if getattr(step, field) is not None:
                yield Problem(f"{at}/{field}", f"{field} belongs to a task or a workflow", "remove it")
    if step.map is not None and step.repeat is not None:
        yield Problem(f"{at}/repeat", "a step is either mapped over a list or repeated", "split it into two steps")
    if step.map is None:
        if step.max_parallel is not None:
            yield Problem(f"{at}/max_parallel", "max_parallel belongs to a step with map", "add map, or remove it")
        if step.max_failed:
            yield Problem(f"{at}/max_failed", "max_failed belongs to a step with map", "add map, or remove it")
    if step.workflow is None and step.params:
        yield Problem(f"{at}/params", "params are given to another workflow", "a task takes values by {{params.name}}")


def _need_problems(at: str, name: str, step: Step, steps: dict[str, Step]) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, need in enumerate(step.needs):
        if need == name:
            yield Problem(f"{at}/needs/{place}", f"a cycle: {name} → {name}", "a step can't need itself")
        elif need not in steps:
            close = closest(need, steps)
            hint = f"did you mean {close!r}?" if close else f"steps: {', '.join(islice(steps, 20))}"
            yield Problem(f"{at}/needs/{place}", f"unknown step {need!r}", hint)
        elif need in seen:
            yield Problem(f"{at}/needs/{place}", f"{need!r} is named twice", "name each step once")
        seen.add(need)
    if not step.needs and (step.rule != "all_succeeded" or step.on_upstream_failure != "skip"):
        yield Problem(f"{at}/needs", "the step has a rule but needs no step", "add needs, or remove it")
    if step.on_upstream_failure == "go_on" and step.rule != "all_succeeded":
        yield Problem(f"{at}/on_upstream_failure", f"it has no effect with the rule {step.rule}", "keep one of the two")


def _extra_problems(at: str, step: Step) -> Iterator[Problem]:
    durations: dict[str, Any] = {}
    if isinstance(step.wait, Wait):
        yield from wait_problems(f"{at}/wait", step.wait)
    else:
        durations["wait"] = step.wait
    if step.approval is not None:
        durations["approval/expires"] = step.approval.expires
        if step.approval.scope not in ("write", "admin"):
            yield Problem(f"{at}/approval/scope", f"{step.approval.scope!r} is not a scope", "write or admin")
        if step.approval.guards_edits and not step.approval.deciders:
            yield Problem(
                f"{at}/approval/guards_edits", "it needs roles, users or groups", "name who may change the workflow"
            )
    if step.event is not None:
        durations["event/timeout"] = step.event.timeout
        if not STEP_NAME.match(step.event.name):
            yield Problem(f"{at}/event/name", f"{step.event.name!r} is not a name", "letters, digits and '_'")
    if step.repeat is not None:
        durations["repeat/delay"] = step.repeat.delay
    for field, limit in (("concurrency", step.concurrency), ("rate", step.rate)):
        if limit is not None and depends_on_params(limit.key):
            yield Problem(f"{at}/{field}/key", "the key of a step cannot contain params", "use a fixed key")
    for field, value in durations.items():
        yield from _duration_problems(f"{at}/{field}", value)


def _duration_problems(pointer: str, value: str | int | float | None) -> Iterator[Problem]:
    if value is None:
        return
    try:
        if (seconds := parse_duration(value)) <= 0:
            yield Problem(pointer, f"{value!r} is too short", "give a positive duration")
        elif seconds > MAX_S:
            yield Problem(pointer, f"{value!r} is too long", "at most 1,000 years")
    except ValueError as error:
        yield Problem(pointer, str(error), "seconds, 90s, 10m, 1h30m or PT3H")


def _param_problems(at: str, step: Step, spec: WorkflowSpec) -> Iterator[Problem]:
    task = _templates_of(step.task)
    named = {(f"{at}/task", name) for name in inputs.params_in(task)}
    named |= {(f"{at}/params", name) for name in inputs.params_in(step.params)}
    named |= {(f"{at}/wait", name) for name in inputs.params_in(_wait(step))}
    for field, text in _expressions(step):
        named |= {(f"{at}/{field}", name) for name in condition.params_named(text)}
    for pointer, name in sorted(named):
        if name not in spec.params:
            close = closest(name, spec.params)
            hint = f"did you mean {close!r}?" if close else f'add "params": {{"{name}": {{}}}} to the workflow'
            yield Problem(pointer, f"unknown parameter {name!r}", hint)


def _known_needs(spec: WorkflowSpec) -> list[list[int]]:
    """The needs of each step by number, without unknown steps and the step itself."""
    numbers = {name: number for number, name in enumerate(spec.steps)}
    return [[numbers[n] for n in step.needs if n in numbers and n != name] for name, step in spec.steps.items()]


def _graph_problems(spec: WorkflowSpec) -> Iterator[Problem]:
    names, needs = list(spec.steps), _known_needs(spec)
    order = topological(needs)
    if len(order) < len(names):
        cycle = _cycle(needs, set(range(len(names))) - set(order))
        shown = [*cycle, cycle[0]]
        shown = shown if len(shown) <= SHOWN_OF_CYCLE else [*shown[: SHOWN_OF_CYCLE - 1], shown[-1]]
        path = " → ".join(names[n] for n in shown)
        yield Problem(f"/steps/{names[cycle[0]]}/needs", f"a cycle: {path}", "remove one of these needs")


def _cycle(needs: list[list[int]], left: set[int]) -> list[int]:
    """One cycle among the steps without an order, in the direction of the flow."""
    path: dict[int, int] = {}  # steps with their place on the path
    step = min(left)
    while step not in path:
        path[step] = len(path)
        step = next(parent for parent in needs[step] if parent in left)
    cycle = list(path)[path[step] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _task_problems(spec: WorkflowSpec) -> Iterator[Problem]:
    """Problems of references and tasks. Checked only once the graph is valid."""
    reads = {name: reads_of(step) for name, step in spec.steps.items()}
    files = {name: {str(one.step) for one in step.artifacts_in} for name, step in spec.steps.items()}
    before = _Before(spec, {name: reads[name] | files[name] for name in spec.steps if reads[name] or files[name]})
    for name, step in spec.steps.items():
        at = f"/steps/{name}"
        taken = {"task": _templates_of(step.task), "params": step.params, "wait": _wait(step)}
        taken["approval/message"] = _message(step)
        for field, value in taken.items():
            for pointer, wrong in inputs.wrong_names(value, f"{at}/{field}"):
                yield Problem(
                    pointer, f"{{{{{wrong}}}}} is not known", "steps.<name>.result, params.<name>, item, run_id"
                )
        for read in sorted(reads[name]):
            own = step.repeat is not None and read == name
            if read not in spec.steps:
                close = closest(read, spec.steps)
                yield Problem(at, f"unknown step {read!r}", f"did you mean {close!r}?" if close else "name a step")
            elif not own and not before.has(name, read):
                yield Problem(at, f"{name} reads the result of {read}, which does not come before it", f"need {read!r}")
        yield from _file_problems(name, step, spec, before)
        if step.task is not None and not any(inputs.wrong_names(taken["task"], "")):
            task, _ = inputs.inputs_of(step.task)
            # With the names as written: `inputs_of` has renamed them.
            spliced = {problem.pointer: problem for problem in splicing_problems(step.task)}
            for found in problems_of(step_job(spec, name, step, task)):
                problem = spliced.get(found.pointer, found)
                if problem.pointer not in ("/name", "/ordered"):
                    yield Problem(f"{at}{problem.pointer}", problem.message, problem.hint)
    for read in sorted(inputs.steps_in(spec.outputs)):
        if read not in spec.steps:
            yield Problem("/outputs", f"unknown step {read!r}", "name a step")


def _file_problems(name: str, step: Step, spec: WorkflowSpec, before: _Before) -> Iterator[Problem]:
    if step.artifacts_in and step.task is None:
        yield Problem(f"/steps/{name}/artifacts_in", "only a task step can use artifacts", "remove it")
    for place, wanted in enumerate(step.artifacts_in):
        at = f"/steps/{name}/artifacts_in/{place}"
        source = spec.steps.get(wanted.step) if isinstance(wanted.step, str) else None
        if wanted.execution is not None and "{{" in wanted.execution:
            yield Problem(f"{at}/execution", "the source is a step, a job or a fixed execution id", 'use "step"')
        elif wanted.step is None:
            continue
        elif source is None:
            close = closest(str(wanted.step), spec.steps)
            hint = f"did you mean {close!r}?" if close else "name a step"
            yield Problem(f"{at}/step", f"unknown step {wanted.step!r}", hint)
        elif source.map is not None:
            hint = "add a step that collects them first"
            yield Problem(f"{at}/step", f"{wanted.step!r} has several executions with artifacts of their own", hint)
        elif not before.has(name, str(wanted.step)):
            yield Problem(f"{at}/step", f"{wanted.step} does not come before {name}", f"need {wanted.step!r}")


class _Before:
    """Which steps come before others, computed only for steps that one reads without needing it directly.

    The steps that are read pass through the graph in blocks, as bits of one number per step: the time is linear in
    the size of the graph for each block.
    """

    def __init__(self, spec: WorkflowSpec, reads: Mapping[str, Set[str]]) -> None:
        self._needs = {name: set(spec.steps[name].needs) for name in reads}
        self._far = {
            name: {read for read in found if read in spec.steps and read not in self._needs[name]}
            for name, found in reads.items()
        }
        self._before: set[tuple[str, str]] = set()
        wanted = list(dict.fromkeys(read for far in self._far.values() for read in far))
        for start in range(0, len(wanted), BLOCK):
            self._trace(spec, wanted[start : start + BLOCK])

    def has(self, name: str, earlier: str) -> bool:
        """Whether `earlier` comes before `name`."""
        return earlier in self._needs[name] or (name, earlier) in self._before

    def _trace(self, spec: WorkflowSpec, wanted: list[str]) -> None:
        names, needs = list(spec.steps), _known_needs(spec)
        bits = {name: 1 << place for place, name in enumerate(wanted)}
        own = [bits.get(name, 0) for name in names]
        passed = [0] * len(names)
        for number in topological(needs):
            for need in needs[number]:
                passed[number] |= passed[need] | own[need]
        numbers = {name: number for number, name in enumerate(names)}
        for name, far in self._far.items():
            found = passed[numbers[name]]
            self._before |= {(name, read) for read in far if found & bits.get(read, 0)}
