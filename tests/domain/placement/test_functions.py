"""The functions that workers state, and demands that name one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Invalid
from mainspring.domain.placement.demand import Demand, can_run, lacks, read_demand
from mainspring.domain.placement.functions import MAX_FUNCTIONS, bounded, check_entries, function_set

PYTHON = frozenset(["python"])


@pytest.mark.parametrize(
    ("entry", "has", "lacks_"),
    [
        ("report", ["report"], ["reports", "report:report", "app:report"]),
        ("shop:pay", ["shop:pay"], ["shop:refund", "shop.tools:pay", "pay", "shop"]),
        ("shop.tools:*", ["shop.tools:pay", "shop.tools:x"], ["shop:pay", "shop.tools.deep:pay", "shop.tools"]),
        ("shop.*", ["shop.tools:pay", "shop.tools.deep:pay"], ["shop:pay", "shopping.tools:pay", "shop.tools"]),
        ("*", ["report", "shop:pay"], []),
    ],
)
def test_what_an_entry_stands_for(entry: str, has: list[str], lacks_: list[str]) -> None:
    stated = function_set([entry])
    assert all(map(stated.has, has)) and not any(map(stated.has, lacks_))


def test_a_demand_with_a_function_needs_a_worker_that_has_it() -> None:
    demand = Demand("python", function="shop:pay")
    shop, other = function_set(["shop:pay"]), function_set(["shop:refund"])
    assert can_run(demand, PYTHON, {}, shop) and not can_run(demand, PYTHON, {}, other)
    assert can_run(demand, PYTHON, {}, None), "a worker of an older version states nothing and gets everything"
    assert can_run(Demand("python"), PYTHON, {}, other), "a line of an older version names no function"
    assert lacks(demand, PYTHON, {}, {}, other) == ["the function 'shop:pay'"]
    assert lacks(demand, PYTHON, {}, {}, shop) == lacks(demand, PYTHON, {}, {}, None) == []


def test_the_key_of_a_demand_is_read_by_every_version() -> None:
    demand = Demand("python", {"zone": "eu"}, {"cpu": 1}, True, "shop:pay")
    assert read_demand(demand.key) == demand
    assert read_demand('{"kind":"python"}') == Demand("python")
    # An older api process reads these fields only: it finds no worker with such a kind, and leaves it to others.
    assert demand.key.startswith('{"kind":"python shop:pay","labels"')


def test_equal_statements_have_equal_ids() -> None:
    first = function_set(["a", "b"], {"x": "1", "y": "2"})
    assert first == function_set(["b", "a"], {"y": "2", "x": "1"}) and hash(first) == hash(
        function_set(first.entries, first.modules)
    )
    assert first != function_set(["a", "b"], {"x": "2", "y": "2"}) != function_set(["a"])


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3}){0,2}", fullmatch=True),
        st.sets(st.from_regex(r"[a-z]{1,3}", fullmatch=True), max_size=5),
        max_size=20,
    )
)
def test_a_bounded_statement_has_every_function(by_module: dict[str, set[str]]) -> None:
    entries = bounded(by_module, ["report"])
    stated = function_set(entries)
    check_entries(entries, {})
    assert stated.has("report") and all(stated.has(f"{m}:{f}") for m, names in by_module.items() for f in names)


@pytest.mark.parametrize(
    ("modules", "each", "expected"),
    [(1, MAX_FUNCTIONS + 1, ["m0:*"]), (MAX_FUNCTIONS + 1, 1, ["*"]), (3, 5, None)],
)
def test_too_many_functions_are_stated_by_module_or_as_all(modules: int, each: int, expected: list[str] | None) -> None:
    by_module = {f"m{m}": [f"f{n}" for n in range(each)] for m in range(modules)}
    found = bounded(by_module)
    assert found == expected if expected else len(found) == modules * each
    below = bounded({f"app.m{m}": [f"f{n}" for n in range(2)] for m in range(MAX_FUNCTIONS + 1)})
    assert below == ["app.*", "app:*"]


def test_a_name_that_is_too_long_is_stated_by_its_module() -> None:
    assert bounded({"app": ["f" * 300]}) == ["app:*"]


@pytest.mark.parametrize("entry", ["", "a b", "os.system()", "a:", ":a", "a:b:c", "a..b:c", "a\nb", "*a", "a*", "a:*b"])
def test_anything_else_is_refused_with_its_place(entry: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_entries(["fine", entry], {})
    assert refused.value.problems[0].pointer == "/functions/1"


def test_versions_are_lines_of_text() -> None:
    check_entries([], {"app": "1.0"})
    with pytest.raises(Invalid):
        check_entries([], {"app": "1\x1b[31m"})
