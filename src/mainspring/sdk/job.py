"""`@job`: declares a function as a job. It stays an ordinary function, and importing it has no other effect.

A worker started with `-m module` registers the jobs that the module declares.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

if TYPE_CHECKING:
    from uuid import UUID

    from mainspring.wire import Execution

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

_FIRE_DATE = "mainspring: the day of the fire"
FireDate = Annotated[date, _FIRE_DATE]
"""A parameter that receives the day of the fire, in the schedule's time zone, as a plain `date`."""

RESERVED = ("at", "key", "conn")
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule with a fixed interval."""

    interval: str | int | float


def every(interval: str | int | float) -> Every:
    """Return a schedule with a fixed interval: `every("1h")`, `every("PT90S")`, `every(30)` seconds."""
    return Every(interval)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A job as code declares it; `spec` has the fields of the API."""

    spec: dict[str, Any]
    file: str
    line: int

    @property
    def name(self) -> str:
        return str(self.spec["name"])


class Job(Protocol[P, R]):
    """A declared function: call it as usual, or submit it."""

    declaration: Declaration

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def submit(self, *, at: datetime | str | None = None, key: str | None = None, **params: Any) -> Execution:
        """Submit an execution, due now or `at` a time; for a day, the same `key` returns the same execution."""
        ...

    def submit_many(
        self,
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
    ) -> list[UUID]:
        """Submit one execution per element of `params` and return their ids in order.

        Raises `mainspring.client.SubmitFailed`, which lists each item that was not submitted and why.
        """
        ...


declared: dict[str, tuple[Declaration, Callable[..., Any]]] = {}
"""Every job declared in this process, by name."""


@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(
    *,
    name: str | None = None,
    schedule: str | Every | Mapping[str, Any] | None = None,
    tz: str | None = None,
    retries: int | Mapping[str, Any] | None = None,
    timeout: str | int | float | None = None,
    queue: str | None = None,
    priority: int | None = None,
    overlap: Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"] | None = None,
    misfire: Literal["latest", "all", "skip"] | Mapping[str, Any] | None = None,
    delivery: Literal["at_least_once", "at_most_once", "effectively_once"] | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    sandbox: Mapping[str, Any] | None = None,
    notify: Sequence[Mapping[str, Any]] | None = None,
    preemptible: bool | None = None,
    artifacts_in: Sequence[Mapping[str, Any]] | None = None,
) -> Callable[[Callable[P, R]], Job[P, R]]: ...
def job(function: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Declare a function as a job.

    `schedule` is a cron expression, `every("1h")` or a schedule as in the API; without one the job runs when it is
    submitted. The parameters of the function are the parameters of the job, passed as JSON.
    """

    def declare(function: Callable[P, R]) -> Job[P, R]:
        spec = _spec(function, name or function.__name__.replace("__", "_").strip("_"), options)
        code = inspect.unwrap(function).__code__
        declaration = Declaration(spec, code.co_filename, code.co_firstlineno)
        known = declared.get(declaration.name)
        if known is not None and known[0].spec["task"] != spec["task"]:
            was = known[0]
            raise ValueError(
                f"two jobs are named {was.name!r}: this one and {was.file}:{was.line}; give one another name="
            )
        declared[declaration.name] = (declaration, function)
        marked = cast(Any, function)
        marked.declaration = declaration
        marked.submit = _submitter(declaration)
        marked.submit_many = _many_submitter(declaration)
        return cast("Job[P, R]", function)

    return declare if function is None else declare(function)


def _spec(function: Callable[..., Any], name: str, options: dict[str, Any]) -> dict[str, Any]:
    args, params = _parameters(function)
    task = {"kind": "python", "function": f"{function.__module__}:{function.__qualname__}", "args": args}
    spec: dict[str, Any] = {"name": name, "task": task, "params": params}
    schedule, zone = options.pop("schedule", None), options.pop("tz", None)
    if schedule is not None:
        spec["schedule"] = _schedule(schedule) | ({"timezone": zone} if zone else {})
    elif zone is not None:
        raise ValueError("tz= needs schedule=")
    retries, misfire = options.pop("retries", None), options.pop("misfire", None)
    if retries is not None:
        spec["retries"] = {"max": retries} if isinstance(retries, int) else dict(retries)
    if misfire is not None:
        spec["misfire"] = {"policy": misfire} if isinstance(misfire, str) else dict(misfire)
    described = (inspect.getdoc(function) or "").partition("\n\n")[0]
    spec["description"] = options.pop("description", None) or described[:4000]
    return spec | {option: value for option, value in options.items() if value is not None}


def _schedule(schedule: str | Every | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(schedule, str):
        return {"cron": schedule}
    return {"every": schedule.interval} if isinstance(schedule, Every) else dict(schedule)


def _parameters(function: Callable[..., Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the arguments that templates fill in, and the parameters of the job."""
    if "<locals>" in function.__qualname__ or "." in function.__qualname__:
        raise ValueError(f"{function.__qualname__} can't be a job: only functions at the top level of a module can")
    hints = typing.get_type_hints(function, include_extras=True)
    args: dict[str, str] = {}
    params: dict[str, dict[str, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY or name in RESERVED:
            reason = "is reserved for submit()" if name in RESERVED else "is positional-only; jobs are called by name"
            raise ValueError(f"{function.__name__}: the parameter {name!r} {reason}")
        hint = hints.get(name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if is_fire_date(hint):
            args[name] = "{{execution_date}}"
            continue
        params[name] = _param(hint, parameter.default)
    return args, params


def is_fire_date(hint: Any) -> bool:
    return _FIRE_DATE in getattr(hint, "__metadata__", ())


def _param(hint: Any, default: Any) -> dict[str, Any]:
    import msgspec

    kind = _TYPES.get(typing.get_origin(hint) or hint)
    if default is inspect.Parameter.empty:
        return {"type": kind} if kind else {}
    as_json = msgspec.to_builtins(default)
    # A default of another type, such as None for a string, overrides the annotation.
    matches = kind is not None and type(as_json) is (typing.get_origin(hint) or hint)
    return ({"type": kind} if matches else {}) | {"default": as_json}


def _submitter(declaration: Declaration) -> Callable[..., Execution]:
    def submit(*, at: datetime | str | None = None, key: str | None = None, **params: Any) -> Execution:
        """Submit an execution, due now or `at` a time; for a day, the same `key` returns the same execution."""
        from mainspring.sdk.submit import submit as send

        return send(declaration, at=at, key=key, params=params)

    return submit


def _many_submitter(declaration: Declaration) -> Callable[..., list[UUID]]:
    def submit_many(
        params: Iterable[Mapping[str, Any]], *, at: datetime | str | None = None, keys: Iterable[str] | None = None
    ) -> list[UUID]:
        """Submit one execution per element of `params` and return their ids in order."""
        from mainspring.sdk.submit import submit_many as send

        return send(declaration, params, at=at, keys=keys)

    return submit_many
