"""Words of a command line that an interpreter runs as code: a value spliced into one would run, too.

Values reach such code as environment variables or as arguments after it. `sh -c` is the common case; the same holds
for `python -c`, `perl -e` and `env -S`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from mainspring.domain.errors import Problem
from mainspring.domain.template import places


class Interpreter(msgspec.Struct, frozen=True):
    """How a program takes code: by which options, and which other options take the next word."""

    letters: str
    names: tuple[str, ...] = ()
    valued: str = ""  # letters of options that take the next word
    valued_names: tuple[str, ...] = ()
    code_after_options: bool = False  # the code is the first word that is no option: `sh -c -e CODE`
    code_ends_options: bool = False  # arguments follow the code, whatever they look like
    options_anywhere: bool = False  # also after other words: `su USER -c CODE`


_SHELL = Interpreter("c", ("--command",), "oO", ("--rcfile", "--init-file"), code_after_options=True)
_PYTHON = Interpreter("c", valued="WX", valued_names=("--check-hash-based-pycs",), code_ends_options=True)
_SCRIPTING = Interpreter("eE", ("--eval",), "IrC", ("--require",))
_JAVASCRIPT = Interpreter("ep", ("--eval", "--print"), "r", ("--require", "--import", "--loader"))
_COMMAND = Interpreter("c", ("--command", "--session-command"), options_anywhere=True)
INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "yash", "fish", "tcsh", "csh"), _SHELL),
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    **dict.fromkeys(("perl", "ruby", "lua", "luajit", "Rscript", "julia", "groovy"), _SCRIPTING),
    **dict.fromkeys(("node", "nodejs", "deno", "bun"), _JAVASCRIPT),
    **dict.fromkeys(("su", "runuser", "flock", "script"), _COMMAND),
    "php": Interpreter("rBRE", ("--run",), "cd"),
    "env": Interpreter("S", ("--split-string",), "uC", ("--unset", "--chdir")),
}


def script_problems(words: Sequence[str], pointers: Sequence[str], *, shell: bool = False) -> Iterator[Problem]:
    """Yield a problem for every template inside code. `shell`: the first word is a shell script."""
    if not any("{{" in word for word in words):
        return
    for place in [0] if shell else _code_places(words):
        if names := places(words[place]):
            yield Problem(pointers[place], _message(names[0]), _hint(names[0]))


def _message(name: str) -> str:
    return f"{{{{{name}}}}} is inside a script, which would run its value as code"


def _hint(name: str) -> str:
    variable = re.sub(r"\W", "_", name.removeprefix("params.")).upper()[:63]
    return (
        f'pass the value as an environment variable: "env": {{"{variable}": "{{{{{name}}}}}"}},'
        f' and write "${variable}" in the script'
    )


def _code_places(words: Sequence[str]) -> list[int]:
    """The places of words that are code, or that could make another one code."""
    found: set[int] = set()
    for start, word in enumerate(words):
        name = word.rpartition("/")[2]
        known = INTERPRETERS.get(name) or INTERPRETERS.get(name.rstrip("0123456789."))
        if known is not None:
            found.update(_code_of(words, start, known))
    return sorted(found)


def _code_of(words: Sequence[str], start: int, known: Interpreter) -> Iterator[int]:
    place, takes_code = start + 1, False
    while place < len(words):
        word = words[place]
        if not _is_option(word):
            if takes_code or (start == 0 and word.startswith("{{")):  # the value could be `-c`
                yield place
            if not known.options_anywhere:
                return
        elif word == "--" and not takes_code:
            return
        elif _has_code(word, known):
            yield place
            if known.code_after_options:
                takes_code = True
            elif not _is_attached(word, known) and place + 1 < len(words) and not _is_option(words[place + 1]):
                place += 1
                yield place
                if known.code_ends_options:
                    return
        place += 2 if _takes_word(word, known) else 1


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] in "-+"


def _has_code(word: str, known: Interpreter) -> bool:
    if word.startswith("--"):
        return word.partition("=")[0] in known.names
    return word[0] == "-" and any(letter in word[1:] for letter in known.letters)


def _takes_word(word: str, known: Interpreter) -> bool:
    """Whether the next word is the value of this option: `-o pipefail`, `-euo pipefail`."""
    if word.startswith("--"):
        return word in known.valued_names
    return _is_option(word) and word[-1] in known.valued


def _is_attached(word: str, known: Interpreter) -> bool:
    """Whether the code follows in the same word: `-e'print 1'`, `--eval=1`."""
    return "=" in word if word.startswith("--") else word[-1] not in known.letters
