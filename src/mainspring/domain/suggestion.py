""" "Did you mean" for a mistyped name, with a bound on how many names are compared. Pure."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from itertools import islice

MAX_WORD_CHARS = 40
"""A longer word gets no suggestion."""
MAX_KNOWN = 1000
"""How many known names are looked at."""
MAX_SIMILAR = 40
"""How many of them are compared by their letters: those of the most similar length."""
MAX_COMPARED = 3
"""How many of these are compared in full, which takes quadratic time in their length."""


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to `word`, or None."""
    if len(word) > MAX_WORD_CHARS:
        return None
    names = [name for name in islice(known, MAX_KNOWN) if len(name) <= MAX_WORD_CHARS]
    if len(names) > MAX_SIMILAR:
        names = heapq.nsmallest(MAX_SIMILAR, names, key=lambda name: abs(len(name) - len(word)))
    matcher = difflib.SequenceMatcher(b=word)

    def similarity(name: str) -> float:
        """An upper bound."""
        matcher.set_seq1(name)
        return matcher.quick_ratio()

    names = heapq.nlargest(MAX_COMPARED, names, key=similarity)
    return next(iter(difflib.get_close_matches(word, names, n=1, cutoff=cutoff)), None)
