"""Job definitions and output for tests of the API."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from mainspring import wire
from mainspring.client import AsyncClient


def named(name: str = "", **spec: Any) -> dict[str, Any]:
    return {"name": name or f"job-{uuid4()}", "task": {"kind": "noop"}, **spec}


ONCE = {"max": 0}


def script(text: str, **spec: Any) -> dict[str, Any]:
    """A job that runs a shell script."""
    spec.setdefault("retries", ONCE)
    env = spec.pop("env", {})
    task = {"kind": "shell", "argv": [text], "shell": True, "env": env}
    return {"name": f"job-{uuid4()}", "task": task, **spec}


def noop(**spec: Any) -> dict[str, Any]:
    return {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, **spec}


async def output(client: AsyncClient, execution: wire.Execution, stream: str = "stdout") -> str:
    """All of it, page by page."""
    text, place = "", ""
    while True:
        logs = await client.logs(execution.execution_id, place=place)
        text += "".join(chunk.text for chunk in logs.chunks if chunk.stream == stream)
        place = logs.place
        if logs.complete:
            return text
