"""Templates inside code are refused wherever an interpreter would run them."""

from __future__ import annotations

import pytest

from mainspring.domain.container import ContainerTask
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, ShellTask, problems_of
from mainspring.domain.params import Param
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.manifest import read_workflows

X = "{{params.x}}"


def pointers(task: ShellTask | ContainerTask) -> list[str]:
    return [
        problem.pointer for problem in problems_of(JobSpec(name="a", task=task, params={"x": Param("string", "1")}))
    ]


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (("sh", "-c", f"echo {X}"), 2),
        (("/bin/bash", "-lc", f"echo '{X}'"), 2),
        (("bash", "-euo", "pipefail", "-c", f"echo {X}"), 4),
        (("bash", "-o", "pipefail", "-c", f"echo {X}"), 4),
        (("bash", "--rcfile", "rc", "-c", f"echo {X}"), 4),
        (("sh", "-c", "-e", X), 3),
        (("sh", "-c", "--", X), 3),
        (("sh", X, "echo hi"), 1),
        (("busybox", "sh", "-c", X), 3),
        (("sudo", "-u", "app", "sh", "-c", X), 5),
        (("kubectl", "exec", "pod", "--", "sh", "-c", X), 6),
        (("python3", "-c", X), 2),
        (("python3.12", "-Ic", X), 2),
        (("/usr/bin/python3", "-W", "ignore", "-c", X), 4),
        (("python3", f"-cprint({X})"), 1),
        (("perl", "-MFile", "-ne", X), 3),
        (("perl", f"-e{X}"), 1),
        (("perl", "-e", "print 1", X), 3),
        (("node", f"--eval={X}"), 1),
        (("node", "--eval", X), 2),
        (("php", "-r", X), 2),
        (("env", f"-S{X}"), 1),
        (("env", "-i", "-S", X), 3),
        (("su", "app", "-c", X), 3),
        (("flock", "/lock", "-c", X), 3),
    ],
)
def test_a_template_in_code_is_refused(argv: tuple[str, ...], place: int) -> None:
    assert pointers(ShellTask(argv=argv)) == [f"/task/argv/{place}"]


@pytest.mark.parametrize(
    "argv",
    [
        ("echo", X),
        ("sh", "-c", 'echo "$1"', "sh", X),
        ("sh", "script.sh", "-c", X),
        ("python3", "tool.py", "-c", X),
        ("python3", "-m", "tool", "-c", X),
        ("python3", "-c", "import sys", X),
        ("env", "A=1", "tool", X),
        ("pip", "install", "python", X),
        ("git", "-c", X),
    ],
)
def test_a_template_in_an_argument_is_fine(argv: tuple[str, ...]) -> None:
    assert pointers(ShellTask(argv=argv)) == []


def test_a_script_takes_values_from_its_environment() -> None:
    assert pointers(ShellTask(argv=(f"echo '{X}'",), shell=True)) == ["/task/argv/0"]
    assert pointers(ShellTask(argv=('echo "$REGION"',), env={"REGION": X}, shell=True)) == []


def test_containers_follow_the_same_rule() -> None:
    assert pointers(ContainerTask(image="a", command=("sh",), args=("-c", f"echo {X}"))) == ["/task/args/1"]
    assert pointers(ContainerTask(image="a", command=("sh", "-c"), args=('echo "$0"', X), env={"A": X})) == []


def test_results_of_steps_are_named_as_they_were_written() -> None:
    text = "name: a\nsteps:\n  b: {python: 'a:b'}\n  c: {shell: [sh, -c, 'rm {{steps.b.result.path}}'], needs: [b]}\n"
    [spec] = read_workflows(text)
    with pytest.raises(Invalid) as raised:
        compile_workflow(spec)
    [problem] = raised.value.problems
    assert problem.pointer == "/steps/c/task/argv/2"
    assert problem.message.startswith("{{steps.b.result.path}} is inside a script")
