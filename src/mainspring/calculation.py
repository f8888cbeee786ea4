"""Runs calculations of requests in one thread of the process, so that the event loop stays free.

One thread, not several: more of them would compute no faster, but each would take the interpreter from the event loop
for five milliseconds at each of its turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_thread = ThreadPoolExecutor(1, thread_name_prefix="calculation")


async def calculated(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns. It must be bounded: other calculations wait for it."""
    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: context.run(work, *args, **kwargs))
