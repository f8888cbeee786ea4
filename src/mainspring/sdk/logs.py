"""Fields of the running execution for log records: its id, job and attempt.

They follow the context, so concurrent coroutines have their own. A thread has them if it runs in a copy of the context,
as with `asyncio.to_thread`.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from mainspring.sdk.context import NotExecuting, context


def log_fields() -> dict[str, Any]:
    """Return execution id, job and attempt of the running execution; outside of one, nothing."""
    try:
        found = context()
    except NotExecuting:
        return {}
    return {"execution_id": found.execution_id, "job": found.job, "attempt": found.attempt}


class LogFilter(logging.Filter):
    """Adds `execution_id`, `job` and `attempt` to each record; outside an execution they are "-".

    handler.addFilter(ms.LogFilter())
    handler.setFormatter(logging.Formatter("%(job)s %(execution_id)s %(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        fields = log_fields()
        for name in ("execution_id", "job", "attempt"):
            if not hasattr(record, name):
                setattr(record, name, fields.get(name, "-"))
        return True


def add_log_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor for structlog that adds the same fields."""
    for name, value in log_fields().items():
        event.setdefault(name, value)
    return event
