"""What can be written and is no use is refused, with the name of the step and what to do."""

from __future__ import annotations

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.manifest import read_workflows

HEAD = "name: x\nparams: {n: {type: integer, default: 3}, l: {type: array, default: []}, any: {default: []}}\nsteps:\n"


def write(step: str) -> None:
    for spec in read_workflows(f"{HEAD}  ok: {{shell: [echo]}}\n  a: {step}\n"):
        compile_workflow(spec)


def refused(step: str) -> tuple[str, str, str]:
    with pytest.raises(Invalid) as caught:
        write(step)
    problem = caught.value.problems[0]
    return problem.pointer, problem.message, problem.hint or ""


@pytest.mark.parametrize(
    ("steps", "pointer", "message", "hint"),
    [
        ("{shell: [echo, '{{item}}']}", "/steps/a", "{{item}} needs a step with map", "map"),
        ("{shell: [echo, '{{item.x}}']}", "/steps/a", "{{item}} needs a step", "map"),
        ("{shell: [echo, '{{iteration}}']}", "/steps/a", "{{iteration}} needs a step with repeat", "repeat"),
        ("{shell: [echo], map: '3'}", "/steps/a/map", "'3' is not a list", "such as"),
        ("{shell: [echo], map: params.n}", "/steps/a/map", "the parameter 'n' is not a list: its type is integer", ""),
        ("{shell: [echo], when: '1 + 1'}", "/steps/a/when", "'1 + 1' is not a boolean", "such as"),
        ("{approval: {}, retries: {max: 3}}", "/steps/a/retries", "retries belongs to a task", "remove it"),
        ("{approval: {}, timeout: 1h}", "/steps/a/timeout", "timeout belongs to a task", "expires"),
        ("{event: {name: go}, timeout: 1h}", "/steps/a/timeout", "timeout belongs to a task", "event: {timeout"),
        ("{wait: 1h, queue: long}", "/steps/a/queue", "queue belongs to a task", "remove it"),
        ("{shell: [echo], rule: all_ok}", "/steps/a/rule", "unknown rule 'all_ok'", "all_done"),
        ("{shell: [echo], rule: odd}", "/steps/a/rule", "unknown rule 'odd'", "all_succeeded, all_done"),
        ("{shell: [echo], repeat: {until: 'true'}}", "/steps/a/repeat", "missing required field `max`", "add max"),
        ("{shell: [echo], neds: [ok]}", "/steps/a/neds", "unknown field 'neds'", "needs"),
        ("{shell: [echo], when: 'params.n >'}", "/steps/a/when", "at character 11: mismatched input", "such as"),
    ],
)
def test_a_step_that_is_no_use_is_refused(steps: str, pointer: str, message: str, hint: str) -> None:
    found = refused(steps)
    assert found[0] == pointer
    assert message in found[1] and "expecting" not in found[1]
    assert hint in found[2]


@pytest.mark.parametrize(
    "steps",
    [
        "{shell: [echo, '{{item}}', '{{item_index}}'], map: '[1, 2]'}",
        "{shell: [echo, '{{item}}'], map: params.l}",
        "{shell: [echo, '{{item}}'], map: params.any}",
        "{shell: [echo, '{{iteration}}'], repeat: {until: 'result == 1', max: 3}}",
        "{shell: [echo], when: 'true'}",
        "{shell: [echo], when: 'params.n'}",
        "{approval: {expires: 1h}, needs: [ok]}",
    ],
)
def test_what_may_have_a_meaning_is_taken(steps: str) -> None:
    write(steps)
