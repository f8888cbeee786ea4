"""Any process dies in the middle of a run: the run continues, and no step is released twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mainspring.domain.errors import MainspringError
from tests.support.processes import dev, until, until_async

pytestmark = pytest.mark.fault

STEPS = 8
DEATHS = {1: "worker", 3: "serve", 5: "worker", 6: "serve"}
"""Which process is killed while which step runs; `serve` is api and scheduler."""


def chain(folder: Path) -> dict[str, Any]:
    def step(number: int) -> dict[str, Any]:
        task = {"kind": "shell", "argv": [f"echo {number} >> {folder}/marks; sleep 0.5"], "shell": True}
        needs = [f"s{number - 1}"] if number else []
        return {"task": task, "needs": needs, "retries": {"max": 9, "base": "100ms"}}

    return {"name": "sturdy", "steps": {f"s{number}": step(number) for number in range(STEPS)}}


async def test_a_run_outlives_worker_api_and_scheduler(tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    def begun(number: int) -> bool:
        return marks.exists() and str(number) in marks.read_text().split()

    async with dev(tmp_path) as running, running.client() as client:
        await client.apply_workflow(chain(tmp_path))
        run = await client.start_run("sturdy")
        for number, role in DEATHS.items():
            await until(f"step {number}", lambda number=number: begun(number), within_s=120)  # type: ignore[misc]
            await running.kill(f" {role} ")

        async def ended() -> bool:
            try:
                return (await client.run(run.run_id)).finished_at is not None
            except MainspringError:  # the api is restarting
                return False

        await until_async("the end of the run", ended, within_s=120)
        found = await client.run(run.run_id)
        assert found.state == "succeeded" and {step.state for step in found.steps} == {"succeeded"}
        written = list(map(int, marks.read_text().split()))
        assert written == sorted(written), "no step began before the one it needs had ended"
        assert set(written) == set(range(STEPS))
        again = {number for number, times in Counter(written).items() if times > 1}
        assert again <= {n for n, role in DEATHS.items() if role == "worker"}, "only what its worker took along"
        made = (await client.executions(job="sturdy", limit=100)).items
        assert len(made) == 1, "one run"
        assert (await client.doctor()).findings == []
