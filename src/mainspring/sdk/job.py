"""`@job`: declares a function or class as a job. It stays what it is, and importing it has no other effect.

A worker started with `-m module` registers the jobs that the module declares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from mainspring.sdk.declaration import Declaration, declared
from mainspring.sdk.job_options import fields_of
from mainspring.sdk.parameters import FireDate, hints_of, parameters_of

if TYPE_CHECKING:
    from uuid import UUID

    from mainspring.sdk.handle import Handle
    from mainspring.sdk.submit import Submitter
    from mainspring.sdk.transactional import AsyncConnection

__all__ = ["AsyncJob", "Declaration", "Every", "FireDate", "Job", "Submittable", "declared", "every", "job"]

P = ParamSpec("P")
R = TypeVar("R")
Duration = str | int | float | timedelta

SUBMIT_OPTIONS = ("at", "key", "conn")
"""Keywords of `submit` that are not parameters, unless the function has one of that name."""


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule with a fixed interval."""

    interval: Duration


def every(interval: Duration) -> Every:
    """Return a schedule with a fixed interval: `every("1h")`, `every("PT90S")`, `every(30)` seconds."""
    return Every(interval)


class Submittable(Protocol[R]):
    """What every declared function has; `R` is what its executions return.

    The options of `submit` can also be given by `options`, which leaves all names to the function's parameters.
    """

    declaration: Declaration

    @overload
    def submit(
        self, *, at: datetime | str | None = None, key: str | None = None, conn: AsyncConnection, **params: Any
    ) -> Coroutine[Any, Any, Handle[R]]: ...
    @overload
    def submit(
        self, *, at: datetime | str | None = None, key: str | None = None, conn: Any = None, **params: Any
    ) -> Handle[R]:
        """Submit an execution, due now or `at` a time; for a day, the same `key` returns the same execution.

        With `conn`, a PostgreSQL connection or session of yours, it is submitted in your transaction: it exists if and
        only if you commit. `await` it on an asynchronous connection.
        """

    async def submit_async(
        self, *, at: datetime | str | None = None, key: str | None = None, conn: Any = None, **params: Any
    ) -> Handle[R]:
        """`submit` for coroutines."""
        ...

    @overload
    def submit_many(
        self,
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
        conn: AsyncConnection,
    ) -> Coroutine[Any, Any, list[UUID]]: ...
    @overload
    def submit_many(
        self,
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
        conn: Any = None,
    ) -> list[UUID]:
        """Submit one execution per element of `params` and return their ids in order.

        With `conn`, they are submitted in your transaction, as by `submit`; `await` it on an asynchronous connection.
        Raises `mainspring.client.SubmitFailed`, which lists each item that was not submitted and why.
        """

    async def submit_many_async(
        self,
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
        conn: Any = None,
    ) -> list[UUID]:
        """`submit_many` for coroutines."""
        ...

    def map(self, *iterables: Iterable[Any], **fixed: Any) -> list[Handle[R]]:
        """Submit one execution per element: `report.map(["us", "eu"])`. `fixed` parameters go to each.

        In your transaction: `report.options(conn=conn).map(...)`.
        """
        ...

    async def map_async(self, *iterables: Iterable[Any], **fixed: Any) -> list[Handle[R]]:
        """`map` for coroutines."""
        ...

    def options(self, *, at: datetime | str | None = None, key: str | None = None, conn: Any = None) -> Submitter[R]:
        """Return the job with options: `report.options(at=..., key=...).submit(region="us")`."""
        ...


class Job(Submittable[R], Protocol[P, R]):
    """A declared function: call it as usual, or submit it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class AsyncJob(Submittable[R], Protocol[P, R]):
    """A declared coroutine function: await it as usual, or submit it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class JobDecorator(Protocol):
    """`@ms.job(...)`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


@overload
def job(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(
    *,
    name: str | None = None,
    schedule: str | Every | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    tz: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    queue: str | None = None,
    priority: int | None = None,
    timeout: Duration | None = None,
    retries: int | Mapping[str, Any] | None = None,
    overlap: Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"] | None = None,
    misfire: Literal["latest", "all", "skip"] | Mapping[str, Any] | None = None,
    delivery: Literal["at_least_once", "at_most_once", "effectively_once"] | None = None,
    paused: bool | None = None,
    pause_after_failures: int | None = None,
    start_by: Duration | None = None,
    finish_by: Duration | None = None,
    max_gap: Duration | None = None,
    estimated_duration: Duration | None = None,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str | int | float] | None = None,
    exclusive: bool | None = None,
    concurrency: int | Mapping[str, Any] | None = None,
    rate: Mapping[str, Any] | None = None,
    ordered: bool | None = None,
    sandbox: Mapping[str, Any] | None = None,
    notify: Sequence[Mapping[str, Any]] | None = None,
    preemptible: bool | None = None,
    artifacts_in: Sequence[Mapping[str, Any]] | None = None,
    allow_plaintext: Sequence[str] | None = None,
    flexible: Mapping[str, Any] | None = None,
    spot: Literal["never", "tolerate", "prefer"] | None = None,
) -> JobDecorator: ...
def job(target: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Declare a function or class as a job, with or without options.

    `schedule` is a cron expression, `every("1h")` or a schedule as in the API; without one the job runs when it is
    submitted. The parameters of the function are the parameters of the job, passed as JSON. A class is constructed with
    the parameters, then called. The options are the fields of a job in the API.
    """

    def declare(target: Callable[P, R]) -> Job[P, R]:
        refuse_unnamed(target)
        own_name = name or target.__name__.replace("__", "_").strip("_")
        spec = _spec(target, own_name, fields_of(own_name, options))
        code = cast(Any, inspect.unwrap(target.__call__ if inspect.isclass(target) else target)).__code__
        declaration = Declaration(spec, code.co_filename, code.co_firstlineno, _returns(target))
        known = declared.get(declaration.name)
        if known is not None and known[0].spec["task"] != spec["task"]:
            was = known[0]
            raise ValueError(
                f"two jobs are named {was.name!r}: this one and {was.file}:{was.line}; give one another name="
            )
        declared[declaration.name] = (declaration, target)
        _attach(target, declaration)
        return cast("Job[P, R]", target)

    if target is not None and not callable(target):
        raise TypeError(f"@ms.job decorates a function or class, not {target!r}; write @ms.job(name={target!r}, ...)")
    return declare if target is None else declare(target)


def _spec(target: Callable[..., Any], name: str, fields: dict[str, Any]) -> dict[str, Any]:
    args, params = parameters_of(target)
    task = {"kind": "python", "function": f"{target.__module__}:{target.__qualname__}", "args": args}
    described = (inspect.getdoc(target) if target.__doc__ else None) or ""
    description = fields.pop("description", None) or described.partition("\n\n")[0][:4000]
    return {"name": name, "task": task, "params": params, "description": description} | fields


def refuse_unnamed(target: Any) -> None:
    """Refuse what a worker could not find by its name."""
    shown = getattr(target, "__qualname__", None)
    if shown is None or not (inspect.isclass(target) or hasattr(inspect.unwrap(target), "__code__")):
        raise TypeError(f"{target!r} can't be a job: only functions and classes of a module can; write a function")
    if "." in shown or not shown.isidentifier():
        raise ValueError(f"{shown} can't be a job: only functions and classes at the top level of a module can")
    if inspect.isclass(target) and "__call__" not in {name for kind in target.__mro__ for name in vars(kind)}:
        raise TypeError(f"the class {shown} can't be a job: it needs a method __call__, which does the work")


def _returns(target: Callable[..., Any]) -> Any:
    try:
        return hints_of(cast(Any, target).__call__ if inspect.isclass(target) else target).get("return", Any)
    except NameError:
        return Any


def _attach(target: Any, declaration: Declaration) -> None:
    """Give the function or class the methods of `Job`."""
    methods: dict[str, Any] = {"declaration": declaration}
    for method in (
        _options, _submit, _submit_async, _submit_many, _submit_many_async, _map, _map_async,
    ):  # fmt: skip
        bound = method(declaration)
        bound.__name__ = method.__name__.removeprefix("_")
        methods[bound.__name__] = staticmethod(bound) if inspect.isclass(target) else bound
    for name, value in methods.items():
        if inspect.isclass(target) and name in vars(target) and name not in getattr(target, "_mainspring_methods", ()):
            raise ValueError(f"the class {target.__name__} has its own {name!r}, which jobs have: rename it")
        setattr(target, name, value)
    if inspect.isclass(target):
        target._mainspring_methods = frozenset(methods)  # type: ignore[attr-defined]


def _split(declaration: Declaration, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the options of `submit` from the parameters. A name that is both is refused."""
    options = {}
    for name in SUBMIT_OPTIONS:
        if name in given:
            if name in declaration.spec["params"] or name in declaration.spec["task"]["args"]:
                raise TypeError(
                    f"{declaration.name}.submit({name}=...) is ambiguous: the function has a parameter {name!r}; "
                    f"write {declaration.name}.options().submit({name}=...) for the parameter, "
                    f"{declaration.name}.options({name}=...).submit(...) for the option"
                )
            options[name] = given.pop(name)
    return options, given


def _options(declaration: Declaration) -> Callable[..., Any]:
    def options(*, at: datetime | str | None = None, key: str | None = None, conn: Any = None) -> Any:
        """Return the job with options: all keywords of its `submit` are parameters."""
        from mainspring.sdk.submit import Submitter

        return Submitter[Any](declaration, at=at, key=key, conn=conn)

    return options


def _submit(declaration: Declaration) -> Callable[..., Any]:
    def submit(**given: Any) -> Any:
        """Submit an execution, due now or `at` a time; for a day, the same `key` returns the same execution."""
        from mainspring.sdk.submit import Submitter

        options, params = _split(declaration, given)
        return Submitter[Any](declaration, **options).submit(**params)

    return submit


def _submit_async(declaration: Declaration) -> Callable[..., Any]:
    async def submit_async(**given: Any) -> Any:
        """`submit` for coroutines."""
        from mainspring.sdk.submit import Submitter

        options, params = _split(declaration, given)
        return await Submitter[Any](declaration, **options).submit_async(**params)

    return submit_async


def _submit_many(declaration: Declaration) -> Callable[..., Any]:
    def submit_many(
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
        conn: Any = None,
    ) -> Any:
        """Submit one execution per element of `params` and return their ids in order."""
        from mainspring.sdk.submit import Submitter

        return Submitter[Any](declaration, at=at, conn=conn).submit_many(params, keys=keys)

    return submit_many


def _submit_many_async(declaration: Declaration) -> Callable[..., Any]:
    async def submit_many_async(
        params: Iterable[Mapping[str, Any]],
        *,
        at: datetime | str | None = None,
        keys: Iterable[str] | None = None,
        conn: Any = None,
    ) -> list[UUID]:
        """`submit_many` for coroutines."""
        from mainspring.sdk.submit import Submitter

        return await Submitter[Any](declaration, at=at, conn=conn).submit_many_async(params, keys=keys)

    return submit_many_async


def _map(declaration: Declaration) -> Callable[..., Any]:
    def map(*iterables: Iterable[Any], **fixed: Any) -> Any:
        """Submit one execution per element of `iterables`; `fixed` parameters go to each."""
        from mainspring.sdk.submit import Submitter

        return Submitter[Any](declaration).map(*iterables, **fixed)

    return map


def _map_async(declaration: Declaration) -> Callable[..., Any]:
    async def map_async(*iterables: Iterable[Any], **fixed: Any) -> Any:
        """`map` for coroutines."""
        from mainspring.sdk.submit import Submitter

        return await Submitter[Any](declaration).map_async(*iterables, **fixed)

    return map_async
