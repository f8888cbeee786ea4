"""Functions in real runner processes: arguments, results, output and ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.domain.params import Param
from mainspring.domain.task import PythonTask
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.executors.python import PythonExecutor
from mainspring.worker.python import pool
from tests.support.attempts import Registry, attempt, written
from tests.support.processes import alive, until

pytestmark = pytest.mark.anyio

APP = "tests.worker.app.jobs"


@asynccontextmanager
async def executor(*modules: str, slots: int = 4) -> AsyncIterator[PythonExecutor]:
    made, registry = PythonExecutor(), Registry()
    await made.start(Host(slots, registry, modules or (APP,)))
    try:
        yield made
    finally:
        await made.stop()
        assert registry.groups == set(), "the guardian was told of every end"


@pytest.fixture(scope="module")
async def calling() -> AsyncIterator[PythonExecutor]:
    async with executor() as made:
        yield made


def function(name: str, params: dict[str, Any] | None = None, **more: Any) -> Work:
    return attempt(PythonTask(f"{APP}:{name}", more.pop("args", {})), params, **more)


async def call(made: PythonExecutor, work: Work) -> Done:
    return await asyncio.wait_for(made.execute(work), 60)


def value(done: Done) -> Any:
    assert done.outcome == "succeeded", done
    return None if done.result is None else msgspec.json.decode(done.result)


async def test_a_declared_function_gets_its_date_its_parameters_and_its_context(calling: PythonExecutor) -> None:
    args = {"day": "{{execution_date}}"}
    work = attempt(PythonTask("report", args), {"region": "us"}, timezone="Europe/Berlin")
    found = value(await call(calling, work))
    assert found == {"day": "2026-11-15", "is_date": True, "region": "us", "attempt": 2, "job": "the-job"}
    chunks = work.take_output()
    assert [(c.stream, c.data) for c in chunks] == [("stdout", b"rows for us\n"), ("stderr", b"careful\n")]
    again = value(await call(calling, function("report", {"day": "2020-02-29"}, args=args)))
    assert (again["day"], again["region"]) == ("2020-02-29", "eu"), "what is given goes over what is filled in"
    declared = {"region": Param(default="ap")}
    assert value(await call(calling, function("report", None, args=args, declared=declared)))["region"] == "ap"


async def test_arguments_have_the_types_the_function_asks_for(calling: PythonExecutor) -> None:
    order = {"id": "01234567-89ab-cdef-0123-456789abcdef", "lines": ["a"]}
    work = function("typed", {"order": order, "day": "2026-01-02"})
    assert value(await call(calling, work)) == ["Order", order["id"], ["a"], 2026]
    wrong = await call(calling, function("typed", {"order": {"id": "x"}, "day": "2026-01-02"}))
    assert (wrong.outcome, wrong.retry) == ("failed", False)
    assert wrong.error is not None and "invalid argument 'order'" in wrong.error
    assert value(await call(calling, function("Greeting", {"name": "you"}))) == "hello you"


@pytest.mark.parametrize(
    ("name", "params", "says", "retry"),
    [
        ("boom", None, "ValueError: no rows\n\nTraceback (most recent call last):\n  File ", True),
        ("leave", None, "the function ended its process: SystemExit: enough", True),
        ("not_json", None, "the result is not JSON: Encoding objects of type object is unsupported", False),
        ("huge", None, "the result has 300,002 bytes; the limit is 262,144", False),
        ("reprot", None, f"unknown function '{APP}:reprot' on this worker; did you mean '{APP}:report'?", True),
        ("_private", None, "it has nothing, report, ", True),
        ("boom", {"x": 1}, f"{APP}:boom takes no argument 'x'; it takes none", False),
        ("report", {"regoin": 1, "day": ""}, f"{APP}:report takes no argument 'regoin'; did you mean 'region'?", False),
        ("report", None, f"{APP}:report: missing argument 'day'; it takes day, region", False),
    ],
)
async def test_failures_say_what_is_wrong(
    calling: PythonExecutor, name: str, params: dict[str, Any] | None, says: str, retry: bool
) -> None:
    done = await call(calling, function(name, params))
    assert (done.outcome, done.retry) == ("failed", retry)
    assert done.error is not None and says in done.error
    assert "runner/serve.py" not in done.error, "our own frames are nobody's business"


async def test_only_what_the_operator_named_can_be_called(calling: PythonExecutor, tmp_path: Path) -> None:
    done = await call(calling, attempt(PythonTask("os:system"), {"command": f"touch {tmp_path}/here"}))
    assert done.error is not None and "unknown function 'os:system'" in done.error
    assert not (tmp_path / "here").exists()


async def test_everything_a_function_writes_is_its_log(calling: PythonExecutor) -> None:
    work = function("noisy")
    await call(calling, work)
    chunks = work.take_output()
    text = {s: b"".join(c.data for c in chunks if c.stream == s).decode() for s in ("stdout", "stderr")}
    assert sorted(text["stdout"].splitlines()) == ["from a program", "from a thread", "printed"]
    assert text["stderr"] == "logged\n"


async def test_an_idle_runner_is_used_again_and_a_dead_one_replaced() -> None:
    async with executor(slots=1) as made:
        first = value(await call(made, function("whoami")))
        assert value(await call(made, function("whoami"))) == first
        died = await call(made, function("die"))
        assert (died.outcome, died.error) == ("failed", "the function's process was ended by SIGKILL")
        assert value(await call(made, function("whoami"))) != first


async def test_slots_run_at_the_same_time(tmp_path: Path) -> None:
    async with executor(slots=4) as made:
        running = [asyncio.create_task(call(made, function("shared", {"file": f"{tmp_path}/go"}))) for _ in range(4)]
        await until("four runners", lambda: len(made.processes) == 4, within_s=60)
        (tmp_path / "go").touch()
        found = {value(done) for done in await asyncio.gather(*running)}
    assert len(found) == 4, "each in a process of its own"


async def test_asynchronous_functions_share_a_runner(tmp_path: Path) -> None:
    async with executor(slots=20) as made:
        works = [function("meet", {"file": str(tmp_path), "name": f"n{n}", "of": 20}) for n in range(20)]
        done = await asyncio.gather(*(call(made, work) for work in works))
        assert len({value(one) for one in done}) <= 2
        assert [written(work) for work in works] == [f"n{n} waits\nn{n} goes\n" for n in range(20)]
        # Synchronous functions still get a runner, though the limit of processes is reached.
        assert value(await call(made, function("whoami"))) not in {value(one) for one in done}


async def test_one_slot_serves_both_sorts_in_turn(tmp_path: Path) -> None:
    async with executor(slots=1) as made:
        for n in range(2):
            (folder := tmp_path / str(n)).mkdir()
            assert value(await call(made, function("meet", {"file": str(folder), "name": "a", "of": 1})))
            assert value(await call(made, function("whoami")))


async def test_a_cancelled_function_cleans_up_and_its_programs_end(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with executor(slots=1) as made:
        work = function("hang", {"file": str(file)})
        running = asyncio.create_task(call(made, work))
        await until("the function", file.exists, within_s=30)
        pids = [int(pid) for pid in file.read_text().split()]
        work.request_stop("cancelled")
        done = await running
        assert (done.outcome, done.error, written(work)) == ("cancelled", "cancelled", "cleaned up\n")
        await until("the end of both", lambda: not any(map(alive, pids)), within_s=20)
        assert value(await call(made, function("whoami"))) not in pids


@pytest.mark.parametrize("name", ["hang", "hang_softly"])
async def test_a_function_that_runs_too_long_is_timed_out(calling: PythonExecutor, tmp_path: Path, name: str) -> None:
    done = await call(calling, function(name, {"file": f"{tmp_path}/file"}, timeout_s=0.2))
    assert (done.outcome, done.error) == ("timed_out", "timed out after 0.2 s")


async def test_one_that_will_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "GRACE_S", 0.2)
    file = tmp_path / "pid"
    async with executor(slots=1) as made:
        work = function("deaf", {"file": str(file)})
        running = asyncio.create_task(call(made, work))
        await until("the function", file.exists, within_s=30)
        work.request_stop("cancelled")
        assert (await running).outcome == "cancelled"
        assert not alive(int(file.read_text()))


async def test_a_cancelled_coroutine_cleans_up_and_leaves_others_alone(tmp_path: Path) -> None:
    async with executor(slots=2) as made:
        value(await call(made, function("meet", {"file": str(tmp_path), "name": "a", "of": 1})))
        soft = function("hang_softly", {"file": f"{tmp_path}/soft"})
        other = function("meet", {"file": str(tmp_path), "name": "b", "of": 4})
        running = [asyncio.create_task(call(made, work)) for work in (soft, other)]
        await until("both", lambda: {"soft", "b"} <= set(os.listdir(tmp_path)), within_s=30)
        soft.request_stop("cancelled")
        assert (await running[0]).outcome == "cancelled"
        assert written(soft) == "cleaned up\n"
        (tmp_path / "last").touch()
        assert value(await running[1])


async def test_a_coroutine_that_will_not_end_takes_its_neighbours_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are preempted, so they return to the queue without using up an attempt."""
    monkeypatch.setattr(pool, "GRACE_S", 0.2)
    async with executor(slots=2) as made:
        hard, other = [function("hang_hard", {"file": f"{tmp_path}/{name}"}) for name in ("hard", "other")]
        running = []
        for name, work in (("hard", hard), ("other", other)):
            running.append(asyncio.create_task(call(made, work)))
            await until(name, (tmp_path / name).exists, within_s=30)
        hard.request_stop("cancelled")
        assert [(await task).outcome for task in running] == ["cancelled", "preempted"]


async def test_many_quick_ones_travel_together_and_one_that_hangs_holds_none_up(tmp_path: Path) -> None:
    """Calls behind it in the same batch are recalled; none is made twice."""
    async with executor(slots=500) as made:
        for _ in range(3):  # until it is known to be fast
            await asyncio.gather(*(call(made, function("nothing")) for _ in range(100)))
            await asyncio.gather(*(call(made, quick(tmp_path)) for _ in range(100)))
        hanging = quick(tmp_path, hang=True)
        works = [quick(tmp_path) for _ in range(50)] + [hanging] + [quick(tmp_path) for _ in range(200)]
        running = [asyncio.create_task(call(made, work)) for work in works]
        others = await asyncio.gather(*(task for work, task in zip(works, running, strict=True) if work is not hanging))
        assert {done.outcome for done in others} == {"succeeded"}
        assert not running[50].done()
        (tmp_path / "go").touch()
        assert (await running[50]).outcome == "succeeded"


def quick(folder: Path, *, hang: bool = False) -> Work:
    return function("maybe_hang", {"file": f"{folder}/go", "hang": hang})


async def test_what_had_not_begun_when_its_runner_died_runs_elsewhere(tmp_path: Path) -> None:
    async with executor(slots=200) as made:
        for _ in range(3):
            await asyncio.gather(*(call(made, function("nothing")) for _ in range(200)))
        works = [function("nothing") for _ in range(60)] + [function("die")] + [function("nothing") for _ in range(60)]
        done = await asyncio.gather(*(call(made, work) for work in works))
    assert [one.outcome for one in done] == ["succeeded"] * 60 + ["failed"] + ["succeeded"] * 60


async def test_progress_is_heard(calling: PythonExecutor, tmp_path: Path) -> None:
    work = function("counting", {"file": f"{tmp_path}/go"})
    running = asyncio.create_task(call(calling, work))
    await until("progress", lambda: work.progress is not None and work.progress.done == 410, within_s=30)
    assert work.progress is not None
    assert (work.progress.total, work.progress.message) == (1000, "counting")
    (tmp_path / "go").touch()
    assert value(await running) == 1000


async def test_a_module_that_can_not_be_loaded_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import os\n\nraise RuntimeError('no key')\n")
    async with executor(str(file)) as made:
        done = await call(made, attempt(PythonTask("broken:x")))
    assert (done.outcome, done.error) == ("failed", f"{file}:3: RuntimeError: no key")


async def test_files_that_changed_are_used_once_the_runners_are_renewed(tmp_path: Path) -> None:
    file = tmp_path / "version.py"
    file.write_text("def number(): return 1")
    async with executor(str(tmp_path), slots=2) as made:
        assert value(await call(made, attempt(PythonTask("version:number")))) == 1
        file.write_text("def number(): return 22")
        os.utime(file, (time.time() + 5, time.time() + 5))
        made.reload()
        assert value(await call(made, attempt(PythonTask("version:number")))) == 22
