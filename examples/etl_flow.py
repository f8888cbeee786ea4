"""The workflow of etl.yaml in Python. Apply it with: mainspring workflows apply etl_flow.py"""

from __future__ import annotations

from etl_jobs import check, extract, load

import mainspring as ms


@ms.workflow(name="etl", defaults={"retries": {"max": 1, "base": "1s"}, "timeout": "1m"})
def etl(flow: ms.Flow, day: str = "monday") -> None:
    found = flow.step(extract, args={"day": day})
    loaded = flow.step(load, args={"part": flow.item}, map=found.parts, max_parallel=2)
    checked = flow.step(check, args={"counts": loaded})
    text = f"published {checked.rows} rows of {day}"
    flow.shell("echo", text, name="publish", after=[checked], when=f"{checked.rows.expression} > 0")
    flow.shell("echo", "nothing to publish", name="warn", after=[checked], when=f"{checked.rows.expression} == 0")
