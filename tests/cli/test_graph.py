"""Graphs drawn as text, and graphs printed as a list because a drawing would be too large or ambiguous."""

from __future__ import annotations

import click
import pytest

from mainspring import wire
from mainspring.cli.graph import MAX_LIST_LINES, Node, drawing_width, graph_lines
from mainspring.cli.output import display_width
from mainspring.cli.tables.runs import run_nodes


def drawn(needs: dict[str, str], width: int = 100) -> list[str]:
    """Draw steps, each given with the names of the steps it needs."""
    return graph_lines([Node(name, before.split(), f"▪ {name}") for name, before in needs.items()], width)


@pytest.mark.parametrize(
    ("needs", "lines"),
    [
        ({"only": ""}, ["▪ only"]),
        ({"one": "", "two": ""}, ["▪ one", "▪ two"]),
        ({"a": "", "b": "a", "c": "b"}, ["▪ a ──▶ ▪ b ──▶ ▪ c"]),
        ({"a": "", "b": "a", "c": "a", "d": "b c"}, ["▪ a ─┬▶ ▪ b ─┬▶ ▪ d", "     └▶ ▪ c ─┘"]),
        (
            {"a": "", "b": "a", "c": "a", "d": "b c", "e": "a d"},
            ["▪ a ─┬▶ ▪ b ─┬▶ ▪ d ─┐", "     ├▶ ▪ c ─┘       ├▶ ▪ e", "     └───────────────┘"],
        ),
        (
            {"a": "", "b": "", "c": "a", "d": "b c", "e": "a d"},
            ["▪ a ─┬────────────────┬▶ ▪ e", "▪ b ─│────────┬▶ ▪ d ─┘", "     └─▶ ▪ c ─┘"],
        ),
        ({"a": "", "b": "", "c": "", "d": "a b c"}, ["▪ a ─┐", "▪ b ─┼▶ ▪ d", "▪ c ─┘"]),
        (
            {"a": "", "b": "", "e": "a", "c": "a b", "d": "b"},
            ["▪ a ─┬─▶ ▪ e", "▪ b ─┴┬▶ ▪ c", "      └▶ ▪ d", "", "  e after a", "  c after a, b", "  d after b"],
        ),
    ],
)
def test_small_graphs_are_drawn(needs: dict[str, str], lines: list[str]) -> None:
    assert drawn(needs) == lines


def test_marks_that_take_two_places_do_not_move_the_lines() -> None:
    lines = graph_lines([Node("a", [], "✋ a"), Node("bb", [], "▪ bb"), Node("c", ["a", "bb"], "▪ c")], 80)
    assert lines == ["✋ a ─┬▶ ▪ c", "▪ bb ─┘"] and display_width("✋ a ─") == display_width("▪ bb ─")


def test_what_is_too_wide_is_listed_and_nothing_is_wider_than_the_terminal() -> None:
    chain = {f"step_{n}": f"step_{n - 1}" if n else "" for n in range(30)}
    lines = drawn(chain, 60)
    assert lines[0] == " 1  ▪ step_0" and lines[-1] == "30  ▪ step_29  after step_28"
    long = {"a" * 50: "", "b" * 50: "a" * 50}
    assert all(display_width(line) <= 70 for line in drawn(long, 70))
    assert drawn(long, 70)[1].endswith("…")


def test_many_alike_share_a_line_and_a_long_list_is_cut() -> None:
    wide = {"a": "", **{f"s{n}": "a" for n in range(1000)}, "end": " ".join(f"s{n}" for n in range(1000))}
    assert drawn(wide) == ["1  ▪ a", "2  ▪ s0 … s999 (1,000 steps)  after a", "3  ▪ end  after s0 … s999 (1,000 steps)"]
    deep = drawn({f"s{n}": f"s{n - 1}" if n else "" for n in range(9_999)} | {"s9999": "s9998 s0"})
    assert len(deep) == MAX_LIST_LINES + 1 and "9,600 more lines" in deep[MAX_LIST_LINES // 2]


def test_a_run_is_drawn_with_the_states_of_its_steps() -> None:
    steps = [
        wire.RunStep(name="b", kind="task", state="running", needs=["a"], items=4, open_items=3),
        wire.RunStep(name="a", kind="task", state="succeeded", needs=[]),
        wire.RunStep(name="b", kind="task", state="running", needs=["a"], item=0),
    ]
    assert graph_lines(run_nodes(steps, color=False), 80) == ["✔ a ──▶ ▶ b 1/4"]
    (line,) = graph_lines(run_nodes(steps, color=True), 80)
    assert click.unstyle(line) == "✔ a ──▶ ▶ b 1/4" and line != click.unstyle(line)


def test_a_pipe_is_as_wide_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert drawing_width() == 120
    monkeypatch.setenv("COLUMNS", "44")
    assert drawing_width() == 44
