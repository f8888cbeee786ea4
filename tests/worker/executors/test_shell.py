"""Shell tasks: values are data, also for jobs that were saved before templates in scripts were refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.domain.job import ShellTask
from mainspring.worker.executors.shell import ShellExecutor
from tests.support.attempts import attempt, host, written

pytestmark = pytest.mark.anyio


@pytest.fixture
async def executor() -> AsyncIterator[ShellExecutor]:
    executor = ShellExecutor()
    await executor.start(host())
    yield executor
    await executor.stop()


@pytest.mark.parametrize(
    "task",
    [
        ShellTask(argv=("echo {{params.word}}",), shell=True),
        ShellTask(argv=("echo '{{params.word}}'",), shell=True),
        ShellTask(argv=("sh", "-c", "echo {{params.word}}")),
    ],
)
async def test_a_saved_script_with_a_template_fails_without_running(
    executor: ShellExecutor, task: ShellTask, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    done = await executor.execute(attempt(task, {"word": f"'; touch {mark}; '; touch {mark}"}))
    assert (done.outcome, done.retry) == ("failed", False)
    assert done.error is not None and '"env": {"WORD": "{{params.word}}"}' in done.error
    assert not mark.exists()


async def test_a_value_in_the_environment_stays_data(executor: ShellExecutor, tmp_path: Path) -> None:
    word = f"$(touch {tmp_path}/ran) `touch {tmp_path}/ran` '; touch {tmp_path}/ran"
    task = ShellTask(argv=('echo "$WORD"',), env={"WORD": "{{params.word}}"}, shell=True)
    work = attempt(task, {"word": word})
    assert (await executor.execute(work)).outcome == "succeeded"
    assert written(work) == f"{word}\n"
    assert not (tmp_path / "ran").exists()
