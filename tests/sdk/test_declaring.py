"""Decorators with every option, on functions and classes, with the messages of every mistake."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

import mainspring as ms
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, check
from mainspring.runner.functions import Function, NotCallable
from mainspring.sdk import job as declaring
from mainspring.sdk import workflow as declaring_workflows
from mainspring.sdk.job_options import OPTIONS
from mainspring.sdk.parameters import params_to_json


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaring, "declared", {})
    monkeypatch.setattr(declaring_workflows, "declared_workflows", {})


# Options ------------------------------------------------------------------------------------------------


def typed_options() -> set[str]:
    """The keywords of the overload that type checkers and editors see."""
    (_, _, with_options) = typing.get_overloads(ms.job)
    return set(inspect.signature(with_options).parameters)


def test_the_decorator_has_every_field_of_a_job() -> None:
    fields = set(JobSpec.__struct_fields__) - {"task", "params"}
    assert typed_options() == fields | {"tz"} == {*OPTIONS, "name"}


def everything() -> None: ...


ALL: dict[str, Any] = {
    "schedule": [{"cron": "0 2 * * *"}, {"every": "1h"}],
    "tz": "Europe/Berlin",
    "description": "all of them",
    "metadata": {"team": "ops"},
    "queue": "long",
    "priority": 7,
    "timeout": "10m",
    "retries": {"max": 3, "base": "10s"},
    "overlap": "queue_one",
    "misfire": {"policy": "all", "window": "6h"},
    "delivery": "at_least_once",
    "paused": True,
    "pause_after_failures": 3,
    "start_by": "5m",
    "finish_by": "1h",
    "max_gap": "2d",
    "estimated_duration": "20m",
    "labels": {"zone": "eu"},
    "resources": {"cpu": 2, "memory": "4Gi"},
    "exclusive": True,
    "concurrency": {"key": "report", "limit": 2},
    "rate": {"limit": 10, "per": "1m"},
    "ordered": False,
    "sandbox": {"memory": "1Gi"},
    "notify": [{"on": ["failed"], "to": ["ops"]}],
    "preemptible": True,
    "artifacts_in": [{"name": "a.csv", "job": "export"}],
    "allow_plaintext": ["args.token"],
    "flexible": {"within": "6h"},
    "spot": "tolerate",
}


def test_every_option_reaches_the_job() -> None:
    assert ALL.keys() == OPTIONS.keys()
    spec = ms.job(**ALL)(everything).declaration.spec
    made = msgspec.convert(spec, JobSpec)
    check(msgspec.structs.replace(made, start_by=None))  # a window says when its job starts
    given = {**ALL, "schedule": [{**one, "timezone": "Europe/Berlin"} for one in ALL["schedule"]]}
    del given["tz"]
    assert {name: spec[name] for name in given} == given


def test_short_forms_of_options() -> None:
    spec = ms.job(retries=3, misfire="skip", concurrency=2, schedule=ms.every(30))(everything).declaration.spec
    assert (spec["retries"], spec["misfire"], spec["concurrency"]) == ({"max": 3}, {"policy": "skip"}, {"limit": 2})
    assert spec["schedule"] == {"every": 30}
    hour = timedelta(hours=1)
    spec = ms.job(timeout=hour, schedule=ms.every(hour))(everything).declaration.spec
    assert (spec["timeout"], spec["schedule"]) == (3600.0, {"every": 3600.0})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retries": "three"}, r"everything: retries='three' must be a number, or a mapping such as \{'max': 3"),
        ({"retries": True}, "retries=True must be a number"),
        ({"retires": 3}, r"everything: unknown option retires=; did you mean retries=\?"),
        ({"colour": "red"}, "unknown option colour=; the options are name, schedule, tz"),
        ({"timeout": [1]}, r"timeout=\[1\] must be a duration"),
        ({"priority": "high"}, "priority='high' must be a whole number from 0 to 10"),
        ({"labels": ["eu"]}, r"labels=\['eu'\] must be a mapping such as \{'zone': 'eu'\}"),
        ({"exclusive": "yes"}, "exclusive='yes' must be True or False"),
        ({"schedule": 60}, "schedule=60 must be a cron expression"),
        ({"notify": "ops"}, "notify='ops' must be a list"),
        ({"queue": 3}, "queue=3 must be a text"),
    ],
)
def test_a_wrong_option_says_what_it_takes(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        ms.job(**options)(everything)


# With and without parentheses ---------------------------------------------------------------------------


def test_decorators_work_with_and_without_parentheses() -> None:
    assert ms.job(everything).declaration.name == ms.job()(everything).declaration.name == "everything"

    @ms.workflow
    def plain(flow: ms.Flow, key: str = "a") -> None:
        flow.shell("true", name="one")

    @ms.workflow()
    def empty(flow: ms.Flow) -> None:
        flow.shell("true", name="one")

    assert (plain.name, empty.name) == ("plain", "empty")
    assert plain.spec.params["key"].default == "a"
    with pytest.raises(TypeError, match=r"ambiguous.*plain\.options\(\)\.start\(key=\.\.\.\) for the parameter"):
        plain.start(key="b")


@pytest.mark.parametrize("decorator", [ms.job, ms.workflow])
def test_a_name_instead_of_a_function_is_explained(decorator: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"write @ms\.\w+\(name='report', \.\.\.\)"):
        decorator("report")


def test_what_has_no_name_in_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match="only functions and classes of a module"):
        ms.job(functools.partial(everything))
    with pytest.raises(ValueError, match="at the top level of a module"):
        ms.job(lambda: None)
    with pytest.raises(TypeError, match="needs a method __call__"):
        ms.job(Uncalled)


class Uncalled:
    pass


# Parameters ---------------------------------------------------------------------------------------------


@dataclass
class Line:
    text: str
    count: int = 1


@dataclass
class Order:
    number: UUID
    day: date
    lines: list[Line] = field(default_factory=list)


class Packed(msgspec.Struct):
    weight: float


class Address(pydantic.BaseModel):
    street: str
    zip_code: int


def typed(
    order: Order,
    packed: Packed,
    address: Address,
    how: Literal["fast", "slow"],
    note: str | None,
    count: Annotated[int, "how many"],
    default: Line = Line("a"),  # noqa: B008
) -> None: ...


def test_objects_travel_as_json_and_arrive_as_objects() -> None:
    spec = ms.job(typed).declaration.spec
    assert {name: param.get("type") for name, param in spec["params"].items()} == {
        "order": "object", "packed": "object", "address": "object", "how": None, "note": None, "count": "integer",
        "default": "object",
    }  # fmt: skip
    assert spec["params"]["default"]["default"] == {"text": "a", "count": 1}
    check(msgspec.convert(spec, JobSpec))
    given = {
        "order": Order(UUID(int=1), date(2026, 1, 2), [Line("x")]),
        "packed": Packed(2.5),
        "address": Address(street="Main", zip_code=12),
        "how": "fast",
        "note": None,
        "count": 3,
        "default": Line("b", 2),
    }
    sent = params_to_json("typed.submit()", given)
    assert sent is not None and msgspec.json.decode(msgspec.json.encode(sent)) == sent
    assert Function("typed", typed).arguments(sent) == given
    with pytest.raises(NotCallable, match="invalid argument 'address'"):
        Function("typed", typed).arguments({**sent, "address": {"street": "Main"}})


class Socket:
    pass


def takes_socket(socket: Socket) -> None: ...


def takes_sockets(sockets: list[Socket]) -> None: ...


def takes_call(call: Callable[[], None]) -> None: ...


def defaults_to_socket(socket: Any = Socket()) -> None: ...  # noqa: B008


def may_take_socket(socket: Socket | None = None) -> None: ...


def takes_unknown(thing: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            takes_socket,
            "takes_socket: the parameter 'socket' has the type Socket, which cannot be made from JSON; use a",
        ),
        (takes_sockets, "the parameter 'sockets' has the type list"),
        (takes_call, "the parameter 'call' has the type"),
        (defaults_to_socket, "the default of the parameter 'socket' is a Socket, which is not JSON"),
        (takes_unknown, "an annotation refers to 'Missing', which is not defined here; import it at run time"),
    ],
)
def test_a_parameter_that_json_cannot_be_is_refused_when_it_is_declared(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        ms.job(function)


def test_an_optional_dependency_that_defaults_to_none_is_allowed() -> None:
    assert ms.job(may_take_socket).declaration.spec["params"] == {"socket": {"default": None}}


@ms.job
def regional(region: str = "eu") -> dict[str, str]:
    return {"region": region}


@pytest.mark.parametrize(
    ("options", "params", "says"),
    [
        ({"at": "tomorrow"}, {}, r"/at: at='tomorrow' is not an instant \(pass a datetime, or ISO 8601 such as"),
        ({"at": date(2026, 1, 1)}, {}, r"at=datetime\.date\(2026, 1, 1\) is not an instant"),
        ({"at": 5}, {}, "at=5 is not an instant"),
        ({"key": 5}, {}, r"/key: key=5 is not a key \(a key is a text of 1 to 200 characters\)"),
        ({"key": "x" * 201}, {}, "is not a key"),
        ({}, {"region": Socket()}, r"/params/region: regional\.submit\(\): the parameter 'region' is a Socket"),
        ({}, {"region": {1, Socket()}}, "which is not JSON"),
    ],
)
def test_a_wrong_argument_of_submit_says_what_to_do(options: dict[str, Any], params: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        regional.submit(**options, **params)
    with pytest.raises(Invalid, match=says):
        regional.options(**options).submit(**params)


# Classes ------------------------------------------------------------------------------------------------


@ms.job(retries=1)
@dataclass
class Export:
    """Export a table."""

    table: str
    order: Order | None = None
    limit: int = 10

    def __call__(self) -> str:
        return f"{self.limit} of {self.table}"


@ms.job
class Greet:
    def __init__(self, name: str, day: ms.FireDate) -> None:
        self.name, self.day = name, day

    async def __call__(self) -> str:
        return f"{self.name} {self.day.year}"


def test_a_class_is_a_handler() -> None:
    made: Any = Export
    greets: Any = Greet  # type checkers do not follow decorators of classes
    spec = made.declaration.spec
    assert spec["task"] == {"kind": "python", "function": f"{__name__}:Export", "args": {}}
    assert (spec["params"]["table"], spec["params"]["limit"]) == (
        {"type": "string"},
        {"type": "integer", "default": 10},
    )
    assert (spec["name"], spec["description"]) == ("Export", "Export a table.")
    assert made.declaration.returns is str
    assert made("a")() == "10 of a"
    order = {"number": str(UUID(int=1)), "day": "2026-01-02"}
    arguments = Function("Export", made).arguments({"table": "b", "order": order})
    assert arguments["order"] == Order(UUID(int=1), date(2026, 1, 2))
    assert Function("Greet", greets).is_async and greets.declaration.spec["task"]["args"] == {
        "day": "{{execution_date}}"
    }


class Submits:
    def submit(self) -> None: ...

    def __call__(self) -> None: ...


def test_a_class_with_a_method_of_that_name_is_refused() -> None:
    with pytest.raises(ValueError, match="the class Submits has its own 'submit', which jobs have: rename it"):
        ms.job(Submits)


# The package --------------------------------------------------------------------------------------------


def test_the_package_lists_its_names() -> None:
    assert set(ms.__all__) <= set(dir(ms))
    for name in ms.__all__:
        assert getattr(ms, name) is not None
    assert {"Client", "AsyncClient", "job", "workflow", "fake_execution"} <= set(dir(ms))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(ms))
