"""The memory that a worker shares with one runner process. It outlives the runner.

The runner notes which call it has begun, and holds results here that it has not sent yet: it need not write to the
socket after each call, and none is lost when it dies. The worker notes which call must end.
"""

from __future__ import annotations

import mmap
import os
import tempfile

HELD_BYTES = 65_536
_BEGUN, _BEGUN_AT, _STOP, _LENGTH = range(4)  # 8 bytes each
_HEAD_BYTES = 32


class RunnerMemory:
    """Each number is one aligned store of 8 bytes, so neither a reader nor a kill in between sees half of it."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory of a descriptor from `create`, and close the descriptor."""
        self._map = mmap.mmap(descriptor, _HEAD_BYTES + HELD_BYTES)
        os.close(descriptor)
        view = memoryview(self._map)
        self._numbers = view[:_HEAD_BYTES].cast("Q")
        self._times = view[:_HEAD_BYTES].cast("d")
        self._held = view[_HEAD_BYTES:]
        view.release()

    @staticmethod
    def create() -> int:
        """Return a descriptor for both processes to map."""
        try:
            descriptor = os.memfd_create("mainspring-runner")
        except (AttributeError, OSError):  # this system has none
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _HEAD_BYTES + HELD_BYTES)
        return descriptor

    def close(self) -> None:
        for view in (self._numbers, self._times, self._held):
            view.release()
        self._map.close()

    # Written by the runner -----------------------------------------------------------------------------

    def begin(self, number: int, now: float) -> None:
        self._times[_BEGUN_AT] = now  # first, so that no call seems to have begun before it did
        self._numbers[_BEGUN] = number

    @property
    def begun(self) -> int:
        """The call that has begun last; 0 if none has."""
        return self._numbers[_BEGUN]

    @property
    def begun_at(self) -> float:
        """When it began, on the monotonic clock of the machine."""
        return self._times[_BEGUN_AT]

    def hold(self, line: bytes) -> bool:
        """Add a message that will be sent later; return False if there is no room."""
        length = self._numbers[_LENGTH]
        end = length + len(line)
        if end > HELD_BYTES:
            return False
        self._held[length:end] = line
        self._numbers[_LENGTH] = end
        return True

    def held(self) -> bytes:
        """The messages that the runner may not have sent."""
        return bytes(self._held[: self._numbers[_LENGTH]])

    def clear_held(self) -> None:
        self._numbers[_LENGTH] = 0

    # Written by the worker -----------------------------------------------------------------------------

    @property
    def stop(self) -> int:
        """The call that must end; 0 if none must."""
        return self._numbers[_STOP]

    @stop.setter
    def stop(self, number: int) -> None:
        self._numbers[_STOP] = number
