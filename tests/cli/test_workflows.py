"""`mainspring workflows` and `runs` against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.manifest import read_workflows
from tests.conftest import Cluster
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio

YAML = """
kind: Workflow
metadata: {name: cli}
spec:
  params: {who: {default: you}}
  defaults: {retries: {max: 0}}
  steps:
    greet: {shell: [echo, "hello {{params.who}}"]}
    sign: {approval: {self_approval: true}, needs: [greet]}
    bye: {shell: [echo, bye], needs: [sign]}
"""


@pytest.mark.parametrize(
    ("step", "message", "hint"),
    [
        ("{shell: echo hi}", "shell cannot be a string", "write its words as a list"),
        ("{http: https://example.org}", "http cannot be a string", "write {url:"),
        ("{python: [f]}", "python cannot be a list", "write the name of the function"),
        ("{shel: [echo]}", "unknown field 'shel'", "did you mean 'shell'?"),
        ("{shell: [sleep, 3]}", "must be a string, got a whole number", "put it in quotes"),
        ("{shell: [echo], needs: b}", "must be a list, got a string", "write a list"),
        ("{workflow: wrong}", "a cycle: wrong → wrong", "give the step a condition"),
    ],
)
async def test_what_is_wrong_in_a_file_is_told_with_the_way_out(
    cluster: Cluster, tmp_path: Path, step: str, message: str, hint: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(f"kind: Workflow\nmetadata: {{name: wrong}}\nspec: {{steps: {{a: {step}}}}}\n")
    said = (await Shell(cluster)("workflows", "apply", str(file), code=6)).stderr
    assert message in said and hint in said and "/steps/a" in said
    for words in (("workflows", "run", "wrong"), ("runs", "list", "--workflow", "wrong")):
        assert "there is no workflow 'wrong'" in (await Shell(cluster)(*words, code=3)).stderr


async def test_back_to_an_earlier_version(cluster: Cluster, tmp_path: Path) -> None:
    shell, file = Shell(cluster), tmp_path / "back.yaml"
    first = YAML.replace("name: cli", "name: back")
    for text in (first, first.replace("echo, bye", "echo, ciao").replace("sign:", "okay:").replace("[sign]", "[okay]")):
        file.write_text(text)
        await shell("workflows", "apply", str(file))
    told = (await shell("workflows", "versions", "back")).output
    assert "+okay -sign ~bye" in told and len(told.splitlines()) == 3
    assert "version 3, 3 steps" in (await shell("workflows", "rollback", "back", "1")).output
    for words in (("export", "back"), ("export", "back", "--version", "1")):
        assert read_workflows((await shell("workflows", *words)).output) == read_workflows(first)
    assert "no version 9" in (await shell("workflows", "rollback", "back", "9", code=3)).stderr
    assert "version 3" in (await shell("workflows", "rollback", "back", "1")).output, "the same again changes nothing"


async def test_from_a_file_to_the_end_of_a_run(cluster: Cluster, tmp_path: Path) -> None:
    shell, file = Shell(cluster), tmp_path / "cli.yaml"
    file.write_text(YAML)
    assert "greet → sign → bye" in (await shell("workflows", "apply", str(file), "--dry-run")).output
    assert "version 1, 3 steps" in (await shell("workflows", "apply", str(file))).output
    assert "cli" in (await shell("workflows", "list")).output
    assert "after greet" in (await shell("workflows", "show", "cli")).output
    exported = (await shell("workflows", "export", "cli")).output
    assert read_workflows(exported) == read_workflows(YAML)
    async with cluster.worker(name="cli"):
        run_id = (await shell("workflows", "run", "cli", "-p", "who=me", "-o", "name")).output.strip()
        async with cluster.client() as client:
            greeted = (await client.run(run_id)).steps[0].execution_id
            assert greeted is not None
            await client.wait(greeted, timeout_s=30)
        for ref in (run_id, run_id[:23], "@last"):
            assert "waiting" in (await shell("runs", "show", ref)).output
        assert "✔ greet" in (await shell("runs", "graph", run_id)).output
        assert "needs approval: approve?" in (await shell("runs", "show", run_id)).output
        assert "Invalid JSON" in (await shell("runs", "event", run_id, "x", "--payload", '{"a', code=2)).stderr
        await shell("runs", "approve", run_id, "sign", "--note", "fine")
        assert "succeeded" in (await shell("runs", "wait", run_id)).output
    assert run_id in (await shell("runs", "list", "--workflow", "cli")).output
    told = (await shell("runs", "timeline", run_id, "sign")).output
    assert told.index("step.waiting") < told.index("step.succeeded") and "fine" in told
    await shell("runs", "timeline", run_id, "nobody", code=3)
    assert "nothing_to_rerun" not in (await shell("runs", "rerun", run_id, code=5)).output
    again = (await shell("runs", "rerun", run_id, "--from", "bye", "-o", "name")).output.strip()
    assert "cancelled" in (await shell("runs", "cancel", again)).output
    await shell("runs", "show", "nonsense", code=3)
    await shell("workflows", "delete", "cli", "--yes")
    await shell("workflows", "show", "cli", code=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Workflow\nmetadata: {name: x}\nspec:\n  steps: {a: {wait: 1s}}\n  steps: {}\n", "line 5, column 3"),
        ("a: [", "line 1"),
        ("kind: Job\n", "kind: Workflow"),
        ("name: x\nsteps: {a: {wait: 1s, neds: [b]}}\n", "needs"),
        ("name: x\nsteps: {a: {wait: 1s, needs: [b]}, b: {wait: 1s, needs: [a]}}\n", "a cycle: a → b → a"),
        ("", "empty"),
    ],
)
async def test_a_mistake_is_told_with_its_place(cluster: Cluster, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    assert said in (await Shell(cluster)("workflows", "apply", str(file), code=6)).output
