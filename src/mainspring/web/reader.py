"""The reader of a page: the caller, the time zone of the reader's browser, and the blackout that holds all fires."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from urllib.parse import unquote
from zoneinfo import available_timezones

from starlette.requests import Request

from mainspring import wire
from mainspring.api.auth import Caller
from mainspring.store.db import AWAY, Database
from mainspring.views.blackouts import over_everything

ZONE_COOKIE = "mainspring_zone"
"""Set by theme.js: the browser's own zone, or the one chosen in the top bar."""
DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class Reader(Caller):
    """`zone`: in which pages show times, and in which forms read them. `blackout`: shown on top of every page."""

    zone: str = DEFAULT_ZONE
    blackout: wire.Blackout | None = None


def as_reader(caller: Caller, request: Request, blackout: wire.Blackout | None = None) -> Reader:
    known = {field.name: getattr(caller, field.name) for field in fields(Caller)}
    return Reader(**known, zone=reader_zone(request), blackout=blackout)


def reader_zone(request: Request) -> str:
    """Return the zone of the cookie; UTC without one, or if this machine does not know it."""
    wanted = unquote(request.cookies.get(ZONE_COOKIE, ""))
    return wanted if wanted in _known() else DEFAULT_ZONE


@cache
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


async def blackout_now(database: Database, *, tenant: int) -> wire.Blackout | None:
    """Return the blackout that the banner shows. Not cached: who has ended one must not see it on the next page."""
    with suppress(*AWAY):  # the page itself says that the database is not reachable
        return await over_everything(database, tenant=tenant)
    return None
