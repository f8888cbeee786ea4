"""Style that nothing wears any more goes: every class of a style sheet is given by a template, a script or code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.tree import ROOT

WEB = ROOT / "src" / "mainspring" / "web"
COMMENT = re.compile(r"/\*.*?\*/", re.S)
SELECTOR = re.compile(r"([^{}]+)\{")
CLASS = re.compile(r"\.([a-zA-Z][\w-]*)")
WORN = re.compile(r'\b(?:class|hue)="([^"]*)"|\b(?:classList\.(?:add|toggle)\(|className = )"([^"]*)"')
SAID = re.compile(r"\{\{(.*?)\}\}")
LITERAL = re.compile(r"(?<!== )'([^']*)'")
QUOTED = re.compile(r'"([\w -]+)"')
NAMING = ("draw/states.py", "draw/timeline.py", "draw/terminal_output.py", "forms/fields.py", "draw/charts.py")
"""Code that hands names of classes to templates."""
COUNTED = re.compile(r"kind-\d+|l\d|c-[a-z]+")
"""Kinds of a form, levels of a heat map and colours of output: made of a beginning and a number or a name."""


def wanted() -> Iterator[tuple[str, str]]:
    for sheet in sorted(WEB.glob("static/*.css")):
        for selector in SELECTOR.findall(COMMENT.sub("", sheet.read_text())):
            if not selector.strip().startswith("@"):
                yield from ((sheet.name, name) for name in CLASS.findall(selector))


def worn() -> set[str]:
    """Words of class attributes; of an expression inside, only what it may write, not what it compares with."""
    found: set[str] = set()
    for file in [*WEB.glob("templates/*.html"), *WEB.glob("static/*.js"), *(WEB / name for name in NAMING)]:
        text = file.read_text()
        for attribute, added in WORN.findall(text):
            literals = (said for code in SAID.findall(attribute) for said in LITERAL.findall(code))
            found.update(" ".join([SAID.sub(" ", attribute), added, *literals]).split())
        if file.suffix == ".py":
            found.update(word for said in QUOTED.findall(text) for word in said.split())
    return found


def test_every_class_of_a_style_sheet_is_worn() -> None:
    given = worn()
    unworn = {f"{sheet}: .{name}" for sheet, name in wanted() if name not in given and not COUNTED.fullmatch(name)}
    assert not unworn, f"no template, script or code gives these classes: {sorted(unworn)}"
