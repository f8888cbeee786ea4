"""The protocols hold in every reachable state of the model, and each guard that is removed breaks an invariant."""

from __future__ import annotations

import re

import pytest

from tests.meta.test_queries import all_queries
from tools.model import attempts, firing
from tools.model.variants import BROKEN, COMPLETE, REDUNDANT, Variant
from tools.tree import ROOT, SOURCE

PAGE = ROOT / "docs" / "explanation" / "model.md"
ROWS = re.findall(r"^\| ([^|`]+?) \| ((?:`[^`]+`(?:, )?)+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("variant", [*COMPLETE, *REDUNDANT], ids=lambda v: v.title)
def test_every_reachable_state_satisfies_the_invariants(variant: Variant) -> None:
    report = variant.run()
    assert report.invariant is None, report.text()
    assert report.states > 2_000, "a model that reaches few states shows little"


@pytest.mark.parametrize("variant", BROKEN, ids=lambda v: v.title)
def test_without_a_guard_an_invariant_is_violated(variant: Variant) -> None:
    report = variant.run()
    print(report.text())
    assert report.invariant is not None and report.invariant.split()[0] == variant.violates, report.text()
    assert report.trace[0][0] == "start" and report.text().count("\n") == len(report.trace)


def test_every_guard_is_removed_somewhere() -> None:
    removed = {guard for v in (*BROKEN, *REDUNDANT) for guard in v.removed}
    assert removed == firing.GUARDS | attempts.GUARDS


def test_the_page_names_statements_and_functions_that_exist() -> None:
    queries = {name for _, name, _ in all_queries()}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    functions = set(re.findall(r"^\s*(?:async )?(?:def|class) (\w+)", sources, re.MULTILINE))
    named = {name for _, cell in ROWS for name in re.findall(r"`([^`]+)`", cell)}
    assert len(ROWS) > 20 and named - queries - functions == set()


def test_the_page_has_every_action_and_every_guard() -> None:
    actions = {action for variant in (*COMPLETE, *BROKEN) for action in actions_of(variant)}
    rows = {title for title, _ in ROWS}
    assert actions - rows == set(), "actions that the page does not map"
    assert (firing.GUARDS | attempts.GUARDS) - rows == set(), "guards that the page does not map"


def actions_of(variant: Variant) -> set[str]:
    """The actions near the start of a model, without the numbers of sessions, schedulers and attempts."""
    guards = frozenset(variant.removed)
    model: firing.Firing | attempts.Attempts
    if variant.protocol == "firing":
        model = firing.Firing(firing.GUARDS - guards)
    else:
        model = attempts.Attempts(attempts.GUARDS - guards, delivery=variant.protocol)
    found, seen, front = set[str](), set[object](), [model.initial()]
    while front and len(seen) < 3_000:
        state = front.pop(0)
        for action, after in model.steps(state):  # type: ignore[arg-type]
            found.add(plain(action))
            if after not in seen:
                seen.add(after)
                front.append(after)
    return found


def plain(action: str) -> str:
    """`settle failed of 2 by 0` is an action `settle`."""
    if action.startswith("settle "):
        return "settle a report"
    if action.split()[0] in ("succeeded", "failed", "preempted"):
        return "a child ends"
    return re.sub(r"\s+", " ", re.sub(r"\b(?:on |, for |for |to |of )?\d\b", "", action)).replace(" :", ":").strip()
