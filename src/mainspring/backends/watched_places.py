"""Looks into watched folders and object stores, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from mainspring.backends.watched_folder import look_into
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import CannotLook, Look, is_store

if TYPE_CHECKING:
    from mainspring.backends.watched_store import WatchedStore

T = TypeVar("T")
MAX_STORES = 1_000
MAX_HANGING = 16
"""Looks into folders whose file system does not respond; with more, no folder is read."""


class WatchedPlaces:
    """Opens places when they are first needed. A look that hangs, as network file systems can, delays no other."""

    def __init__(self) -> None:
        self._stores: dict[str, WatchedStore] = {}
        self._hanging: set[str] = set()

    async def look(self, place: str, *, root: str, pattern: FilePattern, after: str | None, within_s: float) -> Look:
        """Look into a place below an allowed root. Raises CannotLook."""
        silent = f"{place} does not respond"
        try:
            async with asyncio.timeout(within_s):
                if is_store(place):
                    return await self._store(place).look(pattern, after=after)
                if place in self._hanging or len(self._hanging) >= MAX_HANGING:
                    raise CannotLook(silent)
                return await self._in_thread(place, lambda: look_into(place, root=root, pattern=pattern, after=after))
        except TimeoutError:
            raise CannotLook(f"{silent} within {within_s:g} s") from None

    def _store(self, place: str) -> WatchedStore:
        try:
            from mainspring.backends.watched_store import WatchedStore
        except ImportError:
            raise CannotLook(f"{place} needs the extra `s3` on the server: pip install 'mainspring[s3]'") from None
        if place not in self._stores:
            if len(self._stores) >= MAX_STORES:
                self._stores.clear()
            self._stores[place] = WatchedStore(place)
        return self._stores[place]

    async def _in_thread(self, place: str, work: Callable[[], T]) -> T:
        """Run blocking work in a thread that does not keep the process from ending."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def end(result: T | None, error: BaseException | None) -> None:
            self._hanging.discard(place)
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(end, result, error)

        threading.Thread(target=run, name="look", daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            self._hanging.add(place)  # until the thread ends
            raise
