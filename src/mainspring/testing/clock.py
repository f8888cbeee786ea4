"""A clock that stands still until a test moves it: for the database, and for the parts of a cluster in this process."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mainspring.clock import whole_millis
from mainspring.domain.errors import Invalid
from mainspring.store import retention, virtual_time
from mainspring.store.db import Database

START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
"""Where the clock stands when a test begins, unless it says otherwise: noon of a Monday, UTC."""
_PARTITION_DAYS = 2


class VirtualClock:
    """Replaces db_now(), so that every check in SQL follows it. Implements mainspring.clock.Clock."""

    def __init__(self, database: Database, start: datetime = START) -> None:
        self._database = database
        self._partitions_for: date | None = None
        self.now = start

    def now_ms(self) -> float:
        return float(whole_millis(self.now))

    def monotonic(self) -> float:
        return self.now.timestamp()

    async def install(self) -> None:
        """Make the database's time this clock's."""
        async with self._database.transaction() as connection:
            await virtual_time.install_clock(connection, at=self.now)
        await self.set(self.now)

    async def set(self, at: datetime) -> None:
        """Move the clock. The parts of the cluster act when they are asked to."""
        self.now = at
        async with self._database.connection() as connection:
            await virtual_time.set_clock(connection, at=at)
            if self._partitions_for != at.date():
                self._partitions_for = at.date()
                await retention.make_partitions(connection, days=_PARTITION_DAYS)

    async def advance(self, **by: float) -> None:
        await self.set(self.now + timedelta(**by))


def read_instant(at: datetime | str, *, tz: str | None = None) -> datetime:
    """Return an instant. A wall time without an offset is one of the zone `tz`, or else UTC."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise Invalid(f"{at!r} is not a time such as 2026-12-01T09:00 or 2026-12-01T09:00+01:00") from None
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    try:
        zone = UTC if tz is None else ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError):
        raise Invalid(f"{tz!r} is not a time zone such as Europe/Berlin") from None
    return at.replace(tzinfo=zone).astimezone(UTC)
