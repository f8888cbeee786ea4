from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.workflow.folding import MOST_NODES, OPENED, Fold, Folding


def folding(names: list[str], needs: list[list[int]], opened: frozenset[str] = frozenset()) -> Folding:
    column: list[int] = []
    for needed in needs:
        column.append(1 + max((column[need] for need in needed), default=-1))
    return Folding(names, needs, column, opened)


def has_circle(folds: list[Fold], needs: list[list[int]]) -> bool:
    of = {number: place for place, fold in enumerate(folds) for number in fold.members}
    # They come from left to right, so an edge that goes back is the only way to close a circle.
    return any(of[need] > of[number] for number, needed in enumerate(needs) for need in needed)


def wide(count: int) -> tuple[list[str], list[list[int]]]:
    names = ["begin", *(f"load_{n:04d}" for n in range(count)), *(f"clean_{n:04d}" for n in range(count)), "end"]
    needs = [[], *([0] for _ in range(count)), *([1 + n] for n in range(count))]
    return names, [*needs, list(range(1 + count, 1 + 2 * count))]


def test_a_small_graph_is_left_as_it_is() -> None:
    folds = folding(*wide(10)).folds()
    assert [fold.label for fold in folds][:3] == ["begin", "load_0000", "load_0001"]
    assert all(len(fold.members) == 1 for fold in folds)


def test_steps_of_one_kind_become_one() -> None:
    folds = folding(*wide(4000)).folds()
    assert [(fold.label, len(fold.members)) for fold in folds] == [
        ("begin", 1),
        ("load…", 4000),
        ("clean…", 4000),
        ("end", 1),
    ]


def test_an_opened_fold_shows_what_matters_and_keeps_the_rest_together() -> None:
    whole = folding(*wide(4000))
    key = next(fold.key for fold in whole.folds() if fold.label == "load…")
    whole.opened = frozenset([key])
    whole.matters = lambda number: 0 if number == 3999 else 1
    shown = whole.folds()
    assert len(shown) == 4 - 1 + OPENED + 1
    assert "load_3998" in [fold.label for fold in shown]  # number 3999
    rest = next(fold for fold in shown if fold.key == f"{key}.rest")
    assert len(rest.members) == 4000 - OPENED and not rest.opens


def test_a_long_chain_is_cut_into_ranges_that_open_again_and_again() -> None:
    names, needs = [f"s{n}x" for n in range(10_000)], [[n - 1] if n else [] for n in range(10_000)]
    opened, folds = frozenset[str](), list[Fold]()
    for _ in range(4):
        folds = folding(names, needs, opened).folds()
        assert len(folds) <= MOST_NODES and not has_circle(folds, needs)
        assert sorted(n for fold in folds for n in fold.members) == list(range(10_000))
        if (key := next((fold.key for fold in folds if fold.opens), None)) is None:
            break
        opened |= {key}
    assert any(len(fold.members) == 1 for fold in folds)


def some_graph(count: int, seed: int) -> tuple[list[str], list[list[int]]]:
    """Made outside of the strategy, which is to stay quick on a busy machine."""
    chance = random.Random(seed)
    stems = chance.choices(["a", "b_", "c"], k=3)
    needs = [sorted({chance.randrange(n) for _ in range(chance.randrange(4))}) if n else [] for n in range(count)]
    return [f"{chance.choice(stems)}{n}" for n in range(count)], needs


@given(st.integers(1, 700), st.integers(0, 1_000_000), st.integers(0, 5))
@settings(deadline=None)
def test_nothing_is_left_out_and_nothing_goes_in_circles(count: int, seed: int, at: int) -> None:
    names, needs = some_graph(count, seed)
    closed = folding(names, needs).folds()
    assert len(closed) <= MOST_NODES
    keys = [fold.key for fold in closed if fold.opens]
    opened = folding(names, needs, frozenset(keys[at : at + 1])).folds()
    for folds in (closed, opened):
        assert sorted(n for fold in folds for n in fold.members) == list(range(len(names)))
        assert len({fold.key for fold in folds}) == len(folds)
        assert not has_circle(folds, needs)
