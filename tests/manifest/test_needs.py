"""Dependencies in manifests: short and long form, problems, cycles and order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Invalid
from mainspring.manifest import check, manifest_in, read_job, shortened
from mainspring.manifest.needs import JobManifest, cycle_problem, cycles, depths, pointer_to

GRAPHS = st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh")), max_size=8)


def document(needs: object) -> dict[str, object]:
    return {"kind": "Job", "metadata": {"name": "report"}, "spec": {"shell": ["true"], "needs": needs}}


def test_a_list_stands_for_a_mapping() -> None:
    short, long = manifest_in(document(["load", "clean"])), manifest_in(document({"load": {}, "clean": {}}))
    assert short == long
    definition = check(long)
    assert isinstance(definition, JobManifest) and list(definition.needs) == ["load", "clean"]
    assert not hasattr(definition.spec, "needs")
    assert shortened({"needs": {"load": {}}})["needs"] == ["load"]
    assert shortened({"needs": {"load": {"wait": "1m"}}})["needs"] == {"load": {"wait": "1m"}}
    assert manifest_in(document(None)).given["needs"] == {}


@pytest.mark.parametrize(
    ("needs", "pointer"),
    [
        ("load", "/spec/needs"),
        ([1], "/spec/needs/0"),
        (["load", "load"], "/spec/needs/1"),
        ({"load": {"timout": 1}}, "/spec/needs/load/timout"),
        ({"load": {"timeout": "soon"}}, "/spec/needs/load/timeout"),
        ({"load": {"timeout": 0}}, "/spec/needs/load/timeout"),
        ({"load": {"wait": "1h"}}, "/spec/needs/load/wait"),
        ({f"job-{n}": {} for n in range(1001)}, "/spec/needs"),
    ],
)
def test_problems_point_to_the_dependency(needs: object, pointer: str) -> None:
    with pytest.raises(Invalid) as error:
        check(manifest_in(document(needs)))
    assert [problem.pointer for problem in error.value.problems] == [pointer]


def test_an_editor_of_one_job_says_where_dependencies_belong() -> None:
    with pytest.raises(Invalid, match="not part of a job's versions"):
        read_job("kind: Job\nmetadata: {name: a}\nspec: {shell: [echo], needs: [b]}\n")


def test_pointers_follow_the_form_that_was_written() -> None:
    assert pointer_to(document(["a", "b/c"]), "b/c") == "/needs/1"
    assert pointer_to(document({"b/c": {}}), "b/c") == "/needs/b~1c"


@given(GRAPHS)
def test_cycles_are_found_if_there_are_any(graph: dict[str, set[str]]) -> None:
    left = {name: set(needs) for name, needs in graph.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    found = list(cycles(graph))
    assert bool(found) == bool(left)
    for cycle in found:
        assert all(parent in graph[child] for child, parent in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    if not found:
        depth = depths(graph)
        assert all(depth[parent] < depth[child] for child, needs in graph.items() for parent in needs)


def test_long_chains_and_wide_graphs_take_linear_time() -> None:
    size = 20_000
    chain = {str(n): [str(n + 1)] for n in range(size)}
    assert list(cycles(chain)) == [] and depths(chain)["0"] == size
    chain[str(size)] = ["0"]
    (cycle,) = cycles(chain)
    assert len(cycle) == size + 1
    assert len(cycle_problem("", cycle).message) < 1000, "the message names a few"
    wide = {f"c{n}": [f"p{m}" for m in range(300)] for n in range(300)}
    assert list(cycles(wide)) == [] and max(depths(wide).values()) == 1
