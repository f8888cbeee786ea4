"""A hierarchical time wheel: keys with due times, taken out in order. Pure: time is an argument.

Three wheels and an overflow: 3,600 slots of a second, 24 of an hour, 30 of a day, and an overflow by day for later
entries. An entry goes into the finest wheel that spans its due time; when a coarser slot begins, its entries cascade
into the finer wheels, so each entry moves at most three times. Insert and cancel are O(1): a cancelled or moved entry
stays in its slot and is skipped later, because only the dictionary of due times is authoritative.
"""

from __future__ import annotations

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000

Entry = tuple[int, int]


class Level:
    """One wheel: slots by absolute number, of which at most `size` consecutive ones are in use."""

    def __init__(self, width: int, size: int) -> None:
        self.width = width
        self.size = size
        self.slots: dict[int, list[int]] = {}
        self._occupied = 0  # bit (slot mod size) is set if the slot has entries

    def put(self, slot: int, key: int) -> None:
        held = self.slots.get(slot)
        if held is None:
            self.slots[slot] = [key]
            self._occupied |= 1 << slot % self.size
        else:
            held.append(key)

    def take(self, slot: int) -> list[int]:
        self._occupied &= ~(1 << slot % self.size)
        return self.slots.pop(slot)

    def first(self, start: int) -> int | None:
        """Return the first occupied slot from `start` on: two shifts and a lowest bit, however empty the wheel is."""
        if not self._occupied:
            return None
        position = start % self.size
        ahead = self._occupied >> position
        if ahead:
            return start + (ahead & -ahead).bit_length() - 1
        return start + self.size - position + (self._occupied & -self._occupied).bit_length() - 1


class Wheel:
    """Keys with due times in milliseconds; `advance` takes out those that are due, in order.

    Slots hold bare keys and `_due` has the due time of each. A key that was moved or cancelled stays in its old slot
    until that slot begins: then it is dropped, or placed by its current due time.
    """

    def __init__(self, now_ms: int) -> None:
        self._now = now_ms
        self._due: dict[int, int] = {}
        self._seconds = Level(SECOND, 3_600)
        self._hours = Level(HOUR, 24)
        self._days = Level(DAY, 30)
        self._overflow: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def due_of(self, key: int) -> int | None:
        return self._due.get(key)

    def insert(self, key: int, due_ms: int) -> None:
        """Insert a key, or move it. A due time in the past is due at the next `advance`."""
        if self._due.get(key) != due_ms:
            self._due[key] = due_ms
            self._place(key, due_ms)

    def cancel(self, key: int) -> bool:
        return self._due.pop(key, None) is not None

    def next_wake(self) -> int | None:
        """Return when to call `advance` next: the due time of the next entry, or the start of its coarser slot."""
        wakes: list[int] = []
        for level in (self._hours, self._days):
            if (slot := level.first(self._now // level.width)) is not None:
                wakes.append(slot * level.width)
        if self._overflow:
            wakes.append(min(self._overflow) * DAY)
        while (slot := self._seconds.first(self._now // SECOND)) is not None:
            end = (slot + 1) * SECOND
            live = [at for key in self._seconds.slots[slot] if (at := self._due.get(key, end)) < end]
            if live:
                wakes.append(min(live))
                break
            for key in self._seconds.take(slot):  # only what was cancelled or moved on
                if (moved := self._due.get(key)) is not None:
                    self._place(key, moved)
        return max(min(wakes), self._now) if wakes else None

    def advance(self, now_ms: int) -> list[Entry]:
        """Advance to `now_ms` and take out everything due up to and including it, as (due, key) in order."""
        now_ms = max(now_ms, self._now)
        due: list[Entry] = []
        later: list[Entry] = []
        for key in self._begun(now_ms):
            at = self._due.get(key)
            if at is None:
                continue  # cancelled, or already taken
            if at <= now_ms:
                del self._due[key]
                due.append((at, key))
            else:
                later.append((at, key))
        self._now = now_ms
        for at, key in later:
            self._place(key, at)
        due.sort()
        return due

    def _begun(self, now_ms: int) -> list[int]:
        """Empty every slot that has begun. The caller places entries again only after all slots are emptied."""
        begun: list[int] = []
        for level in (self._seconds, self._hours, self._days):
            start = self._now // level.width
            while (slot := level.first(start)) is not None and slot * level.width <= now_ms:
                begun += level.take(slot)
        for day in [day for day in self._overflow if day * DAY <= now_ms]:
            begun += self._overflow.pop(day)
        return begun

    def _place(self, key: int, due_ms: int) -> None:
        at = max(due_ms, self._now)
        for level in (self._seconds, self._hours, self._days):
            slot = at // level.width
            if slot - self._now // level.width < level.size:
                level.put(slot, key)
                return
        self._overflow.setdefault(at // DAY, []).append(key)
