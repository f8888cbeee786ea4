"""`@workflow`: declares a workflow in Python, built by a function that is called once.

The function receives a `Flow` and adds steps to it. Adding a step returns a placeholder for its result: passed to
another step, it becomes a dependency of that step and a value in its task. `mainspring workflows apply FILE.py` saves
the workflows that a file declares.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from mainspring.sdk.job import Every, Job, refuse_unnamed
from mainspring.sdk.job_options import schedule_of
from mainspring.sdk.parameters import declared_param, parameters_of

if TYPE_CHECKING:
    from mainspring import wire
    from mainspring.domain.workflow.spec import WorkflowSpec

_TEMPLATE = re.compile(r"\{\{([^{}]*+)\}\}")
_STEP = re.compile(r"(?<![\w.])(?:steps|upstream)\.([A-Za-z_]\w*)")
_INDEX = re.compile(r"\.(\d+)(?=\.|\Z)")


class Value:
    """A placeholder for a value of the run: a result, a parameter, an item. Access fields by name or index."""

    def __init__(self, path: str, step: str | None = None) -> None:
        self._path, self._step = path, step

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        return Value(f"{self._path}.{name}", self._step)

    def __getitem__(self, key: str | int) -> Value:
        return Value(f"{self._path}.{key}", self._step)

    def __str__(self) -> str:
        return "{{" + self._path + "}}"

    @property
    def expression(self) -> str:
        """The value as conditions refer to it."""
        return _INDEX.sub(r"[\1]", self._path)


class Flow:
    """A workflow under construction."""

    item = Value("item")
    item_index = Value("item_index")
    iteration = Value("iteration")
    run_id = Value("run_id")

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, Any] = {}

    def param(self, name: str) -> Value:
        """Return a parameter of the workflow."""
        return Value(f"params.{name}")

    def step(self, called: Callable[..., Any] | Job[..., Any], /, *, name: str | None = None, **more: Any) -> Value:
        """Add a step that calls a function of a module that workers load.

        `args` has its arguments; all other keywords are fields of a step.
        """
        function: Any = called
        given = dict(more.pop("args", {}))
        task = {"kind": "python", "function": f"{function.__module__}:{function.__qualname__}"}
        declaration = getattr(function, "declaration", None)
        if declaration is None:
            refuse_unnamed(function)
        fixed = declaration.spec["task"]["args"] if declaration is not None else parameters_of(function)[0]
        args = {**fixed, **given}
        return self._add(name or function.__name__, {"task": task | ({"args": args} if args else {}), **more})

    def shell(self, *argv: Any, name: str, **more: Any) -> Value:
        """Add a step that runs a program."""
        return self.task({"kind": "shell", "argv": list(argv)}, name=name, **more)

    def task(self, task: Mapping[str, Any], *, name: str, **more: Any) -> Value:
        """Add a step with any task, as in the API."""
        return self._add(name, {"task": dict(task), **more})

    def upstream(self, before: Value | str) -> Value:
        """Return how an earlier step ended: a state, or `forced`, `skipped`, `kept`."""
        return Value(f"upstream.{_name(before)}", _name(before))

    def approval(
        self,
        name: str,
        *,
        expires: str | None = None,
        scope: str = "write",
        message: str = "",
        self_approval: bool = False,
        roles: Sequence[str] = (),
        users: Sequence[str] = (),
        count: int = 1,
        **more: Any,
    ) -> Value:
        """Add a step that waits for a person's approval; `self_approval`: also of who started the run.

        With `roles` or `users`, only these decide; `count` of them have to approve.
        """
        wanted = {
            "expires": expires,
            "scope": None if scope == "write" else scope,
            "message": message or None,
            "self_approval": self_approval or None,
            "roles": list(roles) or None,
            "users": list(users) or None,
            "count": None if count == 1 else count,
        }
        return self._add(name, {"approval": {k: v for k, v in wanted.items() if v is not None}, **more})

    def event(self, name: str, event: str, *, timeout: str | None = None, **more: Any) -> Value:
        """Add a step that waits for an event sent to the run."""
        wanted = {"name": event, **({"timeout": timeout} if timeout is not None else {})}
        return self._add(name, {"event": wanted, **more})

    def wait(
        self,
        name: str,
        duration: str | int | float | Value | None = None,
        *,
        until: str | Value | None = None,
        **more: Any,
    ) -> Value:
        """Add a step that waits for a duration or until an instant; both may come from a step or a parameter."""
        if until is not None and duration is not None:
            raise ValueError("wait() takes either a duration or until=")
        wanted: Any = duration if until is None else {"until": until}
        return self._add(name, {"wait": {"for": wanted} if isinstance(wanted, Value) else wanted, **more})

    def run(self, workflow: str, *, name: str, **more: Any) -> Value:
        """Add a step that runs another workflow."""
        return self._add(name, {"workflow": workflow, **more})

    def _add(self, name: str, step: dict[str, Any]) -> Value:
        if name in self.steps:
            raise ValueError(f"two steps are named {name!r}; give one another name=")
        needs = {value._step for value in _values(step) if value._step is not None} | _named(step)
        named = [str(_name(need)) for need in step.pop("after", [])]
        order = [known for known in self.steps if known in needs and known not in named]
        step["needs"] = [*named, *order]
        for field in ("when", "map"):
            if isinstance(step.get(field), Value):
                step[field] = step[field].expression
        if isinstance(step.get("map"), list | tuple):
            step["map"] = json.dumps(step["map"])
        self.steps[name] = {field: _to_json(value) for field, value in step.items() if value not in ([], None)}
        return Value(f"steps.{name}.result", name)


class Workflow:
    """A declared workflow; `spec` is sent to the server."""

    def __init__(self, spec: dict[str, Any], file: str, line: int) -> None:
        self._spec, self.file, self.line = spec, file, line

    @property
    def name(self) -> str:
        return str(self._spec["name"])

    @property
    def spec(self) -> WorkflowSpec:
        import msgspec

        from mainspring.codec import problem_of
        from mainspring.domain.errors import Invalid
        from mainspring.domain.workflow.spec import WorkflowSpec

        try:
            return msgspec.convert(self._spec, WorkflowSpec)
        except msgspec.ValidationError as error:
            problem = problem_of(str(error), WorkflowSpec, self._spec)
            message = f"the workflow {self.name} ({self.file}, line {self.line}): {problem}"
            raise Invalid(message, problems=(problem,)) from None

    def start(self, /, **given: Any) -> wire.Run:
        """Start a run of the workflow as last applied; for a day, the same `key=` returns the same run.

        If the workflow has a parameter `key`, write `flow.options(key=...).start(...)`.
        """
        options, params = self._split(given)
        return RunStarter(self.name, **options).start(**params)

    async def start_async(self, /, **given: Any) -> wire.Run:
        """`start` for coroutines."""
        options, params = self._split(given)
        return await RunStarter(self.name, **options).start_async(**params)

    def options(self, *, key: str | None = None) -> RunStarter:
        """Return the workflow with options: all keywords of its `start` are parameters."""
        return RunStarter(self.name, key=key)

    def _split(self, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if "key" not in given:
            return {}, given
        if "key" in self._spec.get("params", {}):
            raise TypeError(
                f"{self.name}.start(key=...) is ambiguous: the workflow has a parameter 'key'; write "
                f"{self.name}.options().start(key=...) for the parameter, "
                f"{self.name}.options(key=...).start(...) for the option"
            )
        return {"key": given.pop("key")}, given


class RunStarter:
    """Starts runs of a workflow with options. All keywords of its methods are parameters of the workflow."""

    def __init__(self, workflow: str, *, key: str | None = None) -> None:
        self._workflow, self._key = workflow, key

    def start(self, /, **params: Any) -> wire.Run:
        """Start a run of the workflow as last applied."""
        from mainspring.sdk.submit import start

        return start(self._workflow, key=self._key, params=params)

    async def start_async(self, /, **params: Any) -> wire.Run:
        """`start` for coroutines."""
        from mainspring.sdk.submit import start_async

        return await start_async(self._workflow, key=self._key, params=params)


declared_workflows: dict[str, Workflow] = {}
"""Every workflow declared in this process, by name."""


@overload
def workflow(function: Callable[..., Any], /) -> Workflow: ...
@overload
def workflow(
    *,
    name: str | None = None,
    schedule: str | Every | Mapping[str, Any] | None = None,
    tz: str | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    schedule: Any = None,
    tz: str | None = None,
    **options: Any,
) -> Any:
    """Declare a workflow, with or without options; the parameters of the function after its `Flow` are those of it.

    `options` are fields of a workflow as in the API: defaults, timeout, sla, overlap, concurrency, ...
    """

    def declare(function: Callable[..., Any]) -> Workflow:
        if not (given := [*inspect.signature(function).parameters.values()]):
            raise TypeError(f"{function.__name__}() must take a Flow: def {function.__name__}(flow: ms.Flow)")
        rest = given[1:]
        hints = typing.get_type_hints(function)
        params = {p.name: declared_param(function, p.name, hints.get(p.name), p.default) for p in rest}
        flow = Flow()
        outputs = function(flow, **{n: flow.param(n) for n in params})
        spec: dict[str, Any] = {"name": name or function.__name__, "steps": flow.steps, **options}
        if params:
            spec["params"] = params
        if schedule is not None:
            spec["schedule"] = schedule_of(schedule, tz)
        if outputs is not None:
            spec["outputs"] = _to_json(dict(outputs))
        if described := (inspect.getdoc(function) or "").partition("\n\n")[0]:
            spec["description"] = described
        code = function.__code__
        made = Workflow(spec, code.co_filename, code.co_firstlineno)
        declared_workflows[made.name] = made
        return made

    if function is not None and not callable(function):
        raise TypeError(
            f"@ms.workflow decorates a function, not {function!r}; write @ms.workflow(name={function!r}, ...)"
        )
    return declare if function is None else declare(function)


def _name(need: Value | str) -> str:
    return need if isinstance(need, str) else need._step or str(need)


def _values(of: Any) -> list[Value]:
    if isinstance(of, Value):
        return [of]
    inner = of.values() if isinstance(of, Mapping) else of if isinstance(of, list | tuple) else ()
    return [value for item in inner for value in _values(item)]


def _named(step: Mapping[str, Any]) -> set[str]:
    """Return the steps that templates and expressions of a step refer to."""
    found = {
        name for text in _texts(step) for expression in _TEMPLATE.findall(text) for name in _STEP.findall(expression)
    }
    repeat = step.get("repeat")
    until = repeat.get("until") if isinstance(repeat, Mapping) else None
    for text in (step.get("when"), step.get("map"), until):
        found |= set(_STEP.findall(text)) if isinstance(text, str) else set()
    return found


def _texts(of: Any) -> list[str]:
    if isinstance(of, str):
        return [of]
    inner = of.values() if isinstance(of, Mapping) else of if isinstance(of, list | tuple) else ()
    return [text for item in inner for text in _texts(item)]


def _to_json(value: Any) -> Any:
    """Return JSON with templates in place of `Value`s."""
    if isinstance(value, Value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value
