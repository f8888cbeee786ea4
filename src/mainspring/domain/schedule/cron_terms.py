"""One field of a cron expression from its text to bits, days by rule, and a normal form."""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from mainspring.domain.schedule.cron_fields import (
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Field,
    LastDay,
    NearestWeekday,
    NthWeekday,
    Special,
    spacing,
    stretches,
    values,
)

# The last days are missing in some months: a job spread over the month must not skip one.
_LAST_HASHED_DAY: Final = 28
_LETTERS = re.compile(r"[LW#]")
_NTH = re.compile(r"([^#]*)#(.*)")
_LAST = re.compile(r"[0-7]L")
_NEAREST = re.compile(r"(\d{1,2})W", re.ASCII)
_HASHED = re.compile(r"H(?:\((.*)\))?")


class Flaw(Exception):
    """What is wrong with one field, at an offset within it."""

    def __init__(self, kind: "Kind", message: str, hint: str, at: int, width: int) -> None:
        super().__init__(message)
        self.kind, self.message, self.hint, self.at, self.width = kind, message, hint, at, width


class Kind(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    wraps: bool = False
    is_day: bool = False
    star_counts: bool = True
    """Whether a leading `*` means more than its values: it decides about clock changes and the day rule."""

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def longest_step(self) -> int:
        """Sunday is 0 and 7, so weekdays have one value more: `*/7` and `0-7/7` mean Sunday."""
        return self.size if self is WEEKDAY else self.size - 1

    @property
    def allowed(self) -> str:
        names = f" or {self.words[0][:3].upper()}-{self.words[-1][:3].upper()}" if self.words else ""
        return f"{self.low}-{7 if self is WEEKDAY else self.high}{names}"


SECOND = Kind("second", 0, 59, star_counts=False)
MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23, wraps=True)
DAY = Kind("day of month", 1, 31, is_day=True)
MONTH = Kind("month", 1, 12, MONTH_NAMES, wraps=True, star_counts=False)
WEEKDAY = Kind("day of week", 0, 6, WEEKDAY_NAMES, wraps=True, is_day=True)
KINDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_BY_NAME: Final = {kind.name: kind for kind in KINDS}
_NUMBERS: Final = {
    kind.name: {word[:3].upper(): number for number, word in enumerate(kind.words, start=kind.low)} for kind in KINDS
}
# What `*/n` means in each kind of field, by n.
_STEPPED: Final = {
    kind.name: [0]
    + [sum(1 << n for n in range(kind.low, kind.high + 1, step)) for step in range(1, kind.longest_step + 1)]
    for kind in KINDS
}
_ANY: Final = {name: Field(bits=sets[1], starred=True, text="*") for name, sets in _STEPPED.items()}
_EVEN: Final = {name: {bits for bits in sets if bits.bit_count() > 1} for name, sets in _STEPPED.items()}


def parse_field(word: str, kind: Kind, seed: str | None) -> Field:
    """Raises `Flaw`. `H` stands for values that depend on `seed` alone."""
    # A field without `H` means the same for every job, so it is read once for all of them.
    return read_field(word, kind.name, seed if seed is not None and "H" in word.upper() else None)


@lru_cache(maxsize=8192)
def read_field(word: str, name: str, seed: str | None) -> Field:
    """A field by the name of its kind; kept, since most fields of a fleet are the same few."""
    kind = _BY_NAME[name]
    if word == "*" or (word == "?" and kind.is_day):
        return _ANY[name]
    bits, at = 0, 0
    special: set[Special] = set()
    for term in word.split(","):
        found = _parse_term(term, kind, at, seed)
        if isinstance(found, int):
            bits |= found
        else:
            special.add(found)
        at += len(term) + 1
    starred = word.startswith("*")
    if not kind.star_counts:
        starred = bits in _EVEN[name]
    ordered = tuple(sorted(special, key=_order)) if special and bits != _STEPPED[name][1] else ()
    return Field(bits, starred, _normal(bits, starred, ordered, kind), ordered)


def _parse_term(term: str, kind: Kind, at: int, seed: str | None) -> int | Special:
    if not term:
        raise Flaw(kind, "a value is missing", "remove the extra comma", at, 1)
    span, slash, step_text = term.partition("/")
    upper = span.upper()
    special = (
        _parse_special(upper, kind, at) if kind.is_day and ("L" in upper or "W" in upper or "#" in upper) else None
    )
    if special is not None:
        if slash:
            raise Flaw(kind, f"a step cannot follow {span}", f"write {span} alone", at, len(term))
        return special
    step = _parse_step(step_text, kind, at + len(span) + 1) if slash else 1
    if span == "*":
        return _STEPPED[kind.name][step]
    if upper.startswith("H"):
        return _parse_hashed(upper, kind, at, step if slash else None, seed)
    if span == "?":
        where = "stand alone" if kind.is_day else "be used in the day fields only"
        raise Flaw(kind, f"? can {where}", "write *", at, len(term))
    low_text, dash, _ = span.partition("-")
    if dash:
        return _bits(kind, _parse_range(span, kind, at)[::step])
    low = _parse_value(low_text, kind, at)
    if slash and not low_text.isdecimal():
        hint = f"write the first value as a number, {low}/{step}, or give a range"
        raise Flaw(kind, f"a step cannot follow the name {low_text}", hint, at, len(term))
    low = low % 7 if kind is WEEKDAY else low
    return _bits(kind, range(low, kind.high + 1, step)) if slash else _bits(kind, [low])


def _parse_range(span: str, kind: Kind, at: int) -> range:
    low_text, _, high_text = span.partition("-")
    low = _parse_value(low_text, kind, at)
    high = _parse_value(high_text, kind, at + len(low_text) + 1)
    if kind is WEEKDAY and low == 7:
        low, high = 0, high % 7
    if low > high:
        if not kind.wraps:
            hint = f"write {low}-{kind.high},{kind.low}-{high}"
            raise Flaw(kind, f"the range {span} runs backwards", hint, at, len(span))
        high += kind.size
    return range(low, high + 1)


def _parse_special(text: str, kind: Kind, at: int) -> Special | None:
    """`L`, `L-3`, `LW`, `15W` as a day of the month; `MON#1`, `FRI#L`, `5L` as a weekday; else None."""
    if kind is DAY:
        return _parse_special_day(text, at)
    nth = _NTH.fullmatch(text)
    if nth is not None:
        weekday = _parse_weekday(nth[1], at) if nth[1] else _refuse_lone_nth(text, at)
        if nth[2] == "L":
            return NthWeekday(weekday)
        if nth[2] not in ("1", "2", "3", "4", "5"):
            hint = "a month has the 1st to the 5th of a weekday; L is the last: write MON#1 or FRI#L"
            raise Flaw(kind, f"#{nth[2]} does not exist", hint, at + len(nth[1]) + 1, len(nth[2]))
        return NthWeekday(weekday, int(nth[2]))
    if text == "L":
        hint = "write SAT for Saturday, or FRI#L for the last Friday of the month"
        raise Flaw(kind, "L alone is unclear as a weekday", hint, at, 1)
    if _LAST.fullmatch(text):
        return NthWeekday(int(text[0]) % 7)
    if text.endswith("L") and any(text[:-1] == name[:3].upper() for name in kind.words):
        raise Flaw(kind, f"{text} is not a value", f"write {text[:-1]}#L", at, len(text))
    if text.endswith("W"):
        raise Flaw(kind, "W belongs to the day of month", "write 15W there, or MON-FRI here", at, len(text))
    return None


def _refuse_lone_nth(text: str, at: int) -> NoReturn:
    raise Flaw(WEEKDAY, "a weekday is missing before #", "write for example MON#1", at, len(text))


def _parse_weekday(text: str, at: int) -> int:
    if "-" in text:
        hint = "write each weekday on its own: MON#1,TUE#1"
        raise Flaw(WEEKDAY, f"# cannot follow the range {text}", hint, at, len(text))
    return _parse_value(text, WEEKDAY, at) % 7


def _parse_special_day(text: str, at: int) -> Special:
    if text == "L":
        return LastDay()
    if text == "LW":
        return NearestWeekday()
    if (nearest := _NEAREST.fullmatch(text)) is not None:
        return NearestWeekday(_parse_value(nearest[1], DAY, at))
    if text.startswith("L-") and _is_number(text[2:]):
        if not 1 <= int(text[2:]) <= 30:
            raise Flaw(DAY, f"{text} is out of range", "allowed are L-1 to L-30", at, len(text))
        return LastDay(int(text[2:]))
    hint = "write L, L-3 (three days before the last), LW or 15W"
    if "#" in text:
        hint = "# belongs to the day of week: write MON#1 there"
    elif text.startswith("L-") and text.endswith("W"):
        hint = "a weekday nearest to a day counted from the end is not known here: write LW, or L-3 alone"
    elif "-" in text and text.endswith("W"):
        hint = "W takes one day, not a range: write 1W,2W"
    elif text == "W":
        hint = "write 15W for the weekday nearest the 15th, LW for the last weekday"
    raise Flaw(DAY, f"{text} is not a day", hint, at, len(text))


def _parse_hashed(text: str, kind: Kind, at: int, step: int | None, seed: str | None) -> int:
    """`H`, `H/15`, `H(0-29)`, `H(0-29)/5`: a value or a phase that is always the same for one job."""
    shape = _HASHED.fullmatch(text)
    if shape is None:
        raise Flaw(kind, f"{text} is not a value", "write H, H/15, H(0-29) or H(0-29)/5", at, len(text))
    high = _LAST_HASHED_DAY if kind is DAY else kind.high
    choices = range(kind.low, high + 1)
    if shape[1] is not None:
        if "-" not in shape[1]:
            raise Flaw(kind, f"H({shape[1]}) has no range", "write for example H(0-29)", at, len(text))
        given = _parse_range(shape[1], kind, at + 2)
        choices = range(given.start, min(given.stop, high + 1)) if kind is DAY else given
        if not choices:
            hint = f"choose days up to {_LAST_HASHED_DAY}, which every month has, or write the day itself"
            raise Flaw(kind, f"H stays within 1-{_LAST_HASHED_DAY}", hint, at, len(text))
    if step is not None and step >= len(choices):
        hint = f"a step here is 1 to {len(choices) - 1}; for a single value write {text} alone"
        raise Flaw(kind, f"the step {step} is too large for {len(choices)} values", hint, at, len(text))
    if seed is None:
        hint = "H is the job's own value, made from its name; without a job write a number"
        raise Flaw(kind, "H needs a job name", hint, at, len(text))
    mark = int.from_bytes(hashlib.sha256(f"{seed}\0{kind.name}".encode()).digest()[:8], "big")
    if step is None:
        return _bits(kind, [choices[mark % len(choices)]])
    return _bits(kind, choices[mark % step :: step])


def _parse_step(text: str, kind: Kind, at: int) -> int:
    if not _is_number(text):
        raise Flaw(kind, f"the step {text!r} is not a number", "write for example */5", at, len(text))
    step = int(text)
    if not 0 < step <= kind.longest_step:
        hint = f"a step is 1 to {kind.longest_step}; for a single value write it alone"
        raise Flaw(kind, f"the step {step} is too large for {kind.size} values", hint, at, len(text))
    return step


def _parse_value(text: str, kind: Kind, at: int) -> int:
    if not _is_number(text):
        upper = text.upper()
        if (named := _NUMBERS[kind.name].get(upper)) is not None:
            return named
        if any(upper == name.upper() for name in kind.words):
            raise Flaw(kind, f"{text} is written in full", f"write {upper[:3]}", at, len(text))
        what = f"{text!r} is not a value" if text else "a value is missing"
        raise Flaw(kind, what, f"write {kind.allowed}", at, len(text))
    number = int(text)
    if not kind.low <= number <= kind.high and not (kind is WEEKDAY and number == 7):
        raise Flaw(kind, f"{number} is out of range", f"allowed are {kind.allowed}", at, len(text))
    return number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _bits(kind: Kind, numbers: Iterable[int]) -> int:
    """Values as bits; those past the end wrap around, so that weekday 7 is Sunday."""
    bits = 0
    for number in numbers:
        bits |= 1 << (number - kind.low) % kind.size + kind.low
    return bits


def _normal(bits: int, starred: bool, special: tuple[Special, ...], kind: Kind) -> str:
    named = [_spell(rule) for rule in special]
    if not starred and bits & bits - 1 == 0:
        return ",".join([str(bits.bit_length() - 1)] * bool(bits) + named)
    if not starred:
        return ",".join([*_runs(values(bits)), *named])
    sets = _STEPPED[kind.name]
    step = next(n for n in range(1, len(sets)) if sets[n] & ~bits == 0)
    rest = _runs(values(bits & ~sets[step])) if bits != sets[step] else []
    return ",".join(["*" if step == 1 else f"*/{step}", *rest, *named])


def _runs(numbers: list[int]) -> list[str]:
    """Values as terms: `1-5` for a run, `0-45/15` if all of them are evenly spaced."""
    if len(numbers) > 2 and (step := spacing(numbers)) > 1:
        return [f"{numbers[0]}-{numbers[-1]}/{step}"]
    return [str(low) if low == high else f"{low}-{high}" for low, high in stretches(numbers)]


def _spell(rule: Special) -> str:
    if isinstance(rule, LastDay):
        return f"L-{rule.before}" if rule.before else "L"
    if isinstance(rule, NearestWeekday):
        return "LW" if rule.day is None else f"{rule.day}W"
    return f"{rule.weekday}#{'L' if rule.number is None else rule.number}"


def _order(rule: Special) -> tuple[int, ...]:
    if isinstance(rule, LastDay):
        return 2, rule.before
    if isinstance(rule, NearestWeekday):
        return (3,) if rule.day is None else (1, rule.day)
    return 4, rule.number or 9, rule.weekday
