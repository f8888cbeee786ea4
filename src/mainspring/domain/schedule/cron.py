"""Cron expressions: five fields or six with seconds first, read and put into one normal form.

`parse_cron` gives a `Cron`, which is matched in cron_match.py; what a single field may hold is in
cron_terms.py.
"""

import difflib
from functools import lru_cache
from typing import Final

from mainspring.domain.schedule.cron_dates import Dates
from mainspring.domain.schedule.cron_fields import Field
from mainspring.domain.schedule.cron_match import Cron
from mainspring.domain.schedule.cron_terms import (
    DAY,
    HOUR,
    KINDS,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Flaw,
    Kind,
    parse_field,
)
from mainspring.domain.schedule.cron_times import Times

__all__ = ["Cron", "CronError", "parse_cron", "split_zone"]

_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Blanks of any width would move the caret.
_BLANKS: Final = str.maketrans("\t\n\r\v\f", "     ")
_ON_THE_MINUTE: Final = Field(bits=1, starred=False, text="0")
_SHAPE: Final = "minute hour day-of-month month day-of-week"
_FIVE, _SIX = KINDS[1:], KINDS


class CronError(ValueError):
    """A wrong expression. `field` names the wrong part; `str()` shows it with a caret below."""

    def __init__(self, message: str, *, text: str, at: int, width: int, field: str | None, hint: str) -> None:
        where = f"{field} field: " if field else ""
        shown = text.translate(_BLANKS)
        super().__init__(f"{where}{message}\n  {shown}\n  {' ' * at}{'^' * max(width, 1)}")
        self.field = field
        self.hint = hint


def parse_cron(text: str, *, day_and: bool = False, seed: str | None = None) -> Cron:
    """Read an expression of five or six fields or a macro such as `@daily`; raises `CronError`.

    `seed` is what `H` is derived from, such as "tenant/job-name".
    """
    words = text.split()
    if len(words) == 1 and words[0][0] == "@":
        return parse_cron(_expand(text), day_and=day_and)
    if len(words) not in (5, 6):
        raise _wrong_count(text, len(words))
    if seed is not None and "H" not in text.upper():
        seed = None  # means the same for every job
    *clock, day, month, weekday = words
    try:
        times, dates = _read_times(seed, *clock), _read_dates(seed, day, month, weekday, day_and)
    except Flaw as flaw:
        raise _at_field(text, words, KINDS[-len(words) :], flaw) from None
    if day == weekday == "?":
        spot = text.rindex("?")
        hint = "write * in one of the two day fields"
        raise CronError("only one day field may be ?", text=text, at=spot, width=1, field=WEEKDAY.name, hint=hint)
    return Cron(times, dates)


# Most expressions of a fleet have the same few times and dates: each is read once for all of them.
@lru_cache(maxsize=16_384)
def _read_times(seed: str | None, *words: str) -> Times:
    second = parse_field(words[-3], SECOND, seed) if len(words) == 3 else _ON_THE_MINUTE
    return Times(second, parse_field(words[-2], MINUTE, seed), parse_field(words[-1], HOUR, seed))


@lru_cache(maxsize=16_384)
def _read_dates(seed: str | None, day: str, month: str, weekday: str, day_and: bool) -> Dates:
    on_day, in_month, on_weekday = (
        parse_field(day, DAY, seed),
        parse_field(month, MONTH, seed),
        parse_field(weekday, WEEKDAY, seed),
    )
    return Dates(on_day, in_month, on_weekday, day_and=day_and)


def split_zone(text: str) -> tuple[str | None, str]:
    """Take a `TZ=Zone` or `CRON_TZ=Zone` prefix off an expression."""
    stripped = text.strip()
    for prefix in ("TZ=", "CRON_TZ="):
        if stripped.startswith(prefix):
            words = stripped.removeprefix(prefix).split(None, 1)
            return (words or [""])[0], words[1] if len(words) > 1 else ""
    return None, text


def _at_field(text: str, words: list[str], kinds: tuple[Kind, ...], flaw: Flaw) -> CronError:
    at, wrong = 0, kinds.index(flaw.kind)
    for word in words[:wrong]:
        at = text.index(word, at) + len(word)
    at = text.index(words[wrong], at) + flaw.at
    return CronError(flaw.message, text=text, at=at, width=flaw.width, field=flaw.kind.name, hint=flaw.hint)


def _expand(text: str) -> str:
    macro = text.strip().lower()
    if macro in _MACROS:
        return _MACROS[macro]
    hint = f"known are {', '.join(_MACROS)} and @every 10m"
    close = difflib.get_close_matches(macro, _MACROS, n=1)
    if macro == "@reboot":
        hint = "a schedule names times; there is no machine whose start could fire it"
    elif close:
        hint = f"did you mean {close[0]}?"
    at = len(text) - len(text.lstrip())
    raise CronError(f"unknown macro {macro}", text=text, at=at, width=len(text.strip()), field=None, hint=hint)


def _wrong_count(text: str, count: int) -> CronError:
    hint = f"write {_SHAPE}, for example `0 2 * * *`; seconds may come first"
    if count < len(_FIVE):
        return CronError(
            f"{count} of {len(_FIVE)} fields given, this one is missing",
            text=text.rstrip(),
            at=len(text.rstrip()) + bool(text.strip()),
            width=1,
            field=_FIVE[count].name,
            hint=hint,
        )
    if count == len(_SIX) + 1:
        hint = f"there is no field for the year: use start_at and end_at; write [second] {_SHAPE}"
    message = f"{count} fields given, {len(_FIVE)} or {len(_SIX)} expected"
    return CronError(message, text=text, at=0, width=len(text), field=None, hint=hint)
