"""`mainspring validate`, `diff`, `apply` and `export` as programs, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.invoke import Invoke

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Program = Callable[..., Awaitable[Ended]]


@pytest.fixture
def program(cluster: Cluster, tmp_path: Path) -> Program:
    async def program(*words: str, stdin: str = "", token: str | None = None) -> Ended:
        names = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START")
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("mainspring")),
            *words,
            cwd=tmp_path,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: os.environ[name] for name in names if name in os.environ}
            | {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": token or cluster.token, "TZ": "UTC"},
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    return program


def job(name: str, more: str = "") -> str:
    return f"kind: Job\nmetadata: {{name: {name}}}\nspec:\n  shell: [echo, hi]\n{more}"


async def test_a_folder_is_compared_applied_and_equal_afterwards(program: Program, tmp_path: Path) -> None:
    tag = uuid4().hex[:8]
    (tmp_path / "deploy" / "more").mkdir(parents=True)
    (tmp_path / "deploy" / "a.yaml").write_text(
        job(f"a-{tag}", '  schedule: {cron: "0 2 * * *"}\n') + "---\n" + job(f"b-{tag}")
    )
    (tmp_path / "deploy" / "more" / "q.yml").write_text(f"kind: Queue\nmetadata: {{name: q-{tag}}}\nspec: {{cap: 3}}\n")
    (tmp_path / "deploy" / "notes.txt").write_text("not a manifest")
    assert (await program("validate", "deploy")).out == "3 valid: 1 Queue, 2 Job\n"
    compared = await program("diff", "-f", "deploy")
    assert compared.code == 20
    assert compared.out.splitlines()[:2] == [f"+ Queue q-{tag}", f"+ Job a-{tag}"]
    assert " 02:00:00, " in compared.out and compared.out.endswith(
        "3 to create, 0 to change, 0 to delete, 0 unchanged\n"
    )
    refused = await program("apply", "deploy")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert (await program("diff", "deploy")).code == 20
    written = await program("apply", "deploy", "--yes")
    assert (written.code, written.out.splitlines()[-1]) == (0, "3 created, 0 changed, 0 deleted, 0 unchanged")
    again = await program("diff", "deploy")
    assert (again.code, again.out) == (0, "0 to create, 0 to change, 0 to delete, 3 unchanged\n")
    assert (await program("apply", "deploy", "--yes")).err == "nothing to do\n"


async def test_stdin_json_output_and_a_dry_run(program: Program, cluster: Cluster) -> None:
    name = f"j-{uuid4().hex[:8]}"
    dry = await program("apply", "-", "--dry-run", "-o", "json", stdin=job(name))
    plan = json.loads(dry.out)
    assert (dry.code, plan["applied"], plan["created"]) == (0, False, 1)
    assert (await program("diff", "-", stdin=job(name))).code == 20
    written = json.loads((await program("apply", "-", "--yes", "-o", "json", stdin=job(name))).out)
    assert (written["applied"], written["changes"][0]["name"]) == (True, name)


async def test_problems_have_file_line_and_column_and_all_are_listed(program: Program, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(job("a", "  priority: 11\n  retires: {max: 3}\n"))
    (tmp_path / "two.yaml").write_text(job("b") + "---\n" + job("a") + "---\nkind: Jb\nmetadata: {name: x}\n")
    (tmp_path / "three.yaml").write_text("kind: Job\nmetadata: {name: x\n")
    (tmp_path / "four.yaml").write_text(job("b"))
    for command in ("validate", "diff"):
        ended = await program(command, "one.yaml", "two.yaml", "three.yaml", "four.yaml")
        assert ended.code == 6
        for line in (
            "  one.yaml:5:3: spec.priority: must be at most 10",
            "  one.yaml:6:3: spec.retires: unknown field 'retires'",
            "  two.yaml:11:1: kind: unknown kind 'Jb'",
            "  four.yaml:2:12: metadata.name: Job/b is also in two.yaml",
        ):
            assert line in ended.err
        assert "three.yaml:2:19" in ended.err


async def test_problems_of_the_server_have_file_line_and_column(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        job("a", '  schedule: {cron: "0 2 * * *", calendar: none}\n')
        + "---\n"
        + job("b", "  notify:\n  - {on: [failed], to: [none]}\n")
    )
    ended = await program("apply", "a.yaml", "--yes")
    assert ended.code == 6
    assert "a.yaml:5:33: spec.schedule.calendar: " in ended.err
    assert "a.yaml:12:25: spec.notify.0.to.0: there is no channel 'none'" in ended.err


async def test_an_export_is_equal_in_a_file_and_in_a_folder(
    program: Program, tmp_path: Path, client: AsyncClient
) -> None:
    name = f"j-{uuid4().hex[:8]}"
    await client.create_job({"name": name, "task": {"kind": "shell", "argv": ["echo", "é ✔"]}, "priority": 7})
    (tmp_path / "all.yaml").write_text((await program("export")).out)
    assert f"name: {name}" in (tmp_path / "all.yaml").read_text()
    assert (await program("diff", "all.yaml")).code == 0
    (tmp_path / "folder").mkdir()
    await program("export", "-f", "folder")
    assert (tmp_path / "folder" / "job" / f"{name}.yaml").is_file()
    assert (await program("diff", "folder")).code == 0
    one = await program("export", "--kind", "Job", "--name", name)
    assert one.out.startswith("kind: Job\n") and "priority: 7" in one.out
    assert (await program("export", "--name", "no-such")).code == 3


async def test_prune_and_owners(program: Program, tmp_path: Path) -> None:
    tag = uuid4().hex[:8]
    (tmp_path / "a.yaml").write_text(job(f"a-{tag}") + "---\n" + job(f"b-{tag}"))
    assert (await program("apply", "a.yaml", "--owner", tag, "--yes")).code == 0
    (tmp_path / "a.yaml").write_text(job(f"a-{tag}"))
    assert (await program("diff", "a.yaml", "--owner", tag)).code == 0
    compared = await program("diff", "a.yaml", "--owner", tag, "--prune")
    assert (compared.code, compared.out.splitlines()[0]) == (20, f"- Job b-{tag}")
    assert (await program("apply", "a.yaml", "--owner", tag, "--prune", "--yes")).out.splitlines()[-1] == (
        "0 created, 0 changed, 1 deleted, 1 unchanged"
    )
    other = await program("apply", "a.yaml", "--owner", f"other-{tag}", "--yes")
    assert (other.code, f"a.yaml:2:12: metadata.name: Job 'a-{tag}' belongs to the owner '{tag}'" in other.err) == (
        6,
        True,
    )


def test_usage(invoke: Invoke, tmp_path: Path) -> None:
    assert (invoke("validate").exit_code, invoke("validate", "none.yaml").exit_code) == (2, 2)
    (tmp_path / "empty").mkdir()
    assert "No manifests in empty" in invoke("apply", "empty", "--prune", "--yes").output
    assert invoke("export", "--kind", "Jb").exit_code == 2
    assert json.loads(invoke("schema").output)["title"] == "Mainspring manifest"


async def test_dependencies_are_planned_and_their_problems_have_line_and_column(
    program: Program, tmp_path: Path
) -> None:
    a, b, c = (f"{name}-{uuid4().hex[:8]}" for name in "abc")
    file = tmp_path / "needs.yaml"
    file.write_text(job(a, f"  needs: [{b}, {c}]\n") + "---\n" + job(b) + "---\n" + job(c, f"  needs: {{{b}: {{}}}}\n"))
    written = await program("apply", "needs.yaml", "--yes")
    assert written.out.splitlines()[:5] == [
        f"+ Job {b}",
        f"+ Job {c}",
        f"    + needs {b}",
        f"+ Job {a}",
        f"    + needs {b}",
    ]
    file.write_text(job(a, f"  needs:\n    {c}: {{timeout: 6h}}\n") + "---\n" + job(b) + "---\n" + job(c))
    compared = await program("diff", "needs.yaml")
    assert f"    - needs {b}\n    ~ needs {c} (timeout 6h)\n" in compared.out
    file.write_text(job(a, f"  needs: [{b},\n    {c}]\n") + "---\n" + job(c, f"  needs:\n  - {a}\n") + "---\n" + job(b))
    cycle = await program("validate", "needs.yaml")
    assert (cycle.code, "a cycle: " in cycle.err) == (6, True)
    lines = file.read_text().splitlines()
    of_a, of_c = lines.index(f"    {c}]") + 1, lines.index(f"  - {a}") + 1
    assert f"needs.yaml:{of_c}:5: spec.needs.0: a cycle: {c} → {a} → {c}" in cycle.err or (
        f"needs.yaml:{of_a}:5: spec.needs.1: a cycle: {a} → {c} → {a}" in cycle.err
    ), cycle.err
    file.write_text(job(a, f"  needs: [{b}, missing-{c}]\n"))
    unknown = await program("diff", "needs.yaml")
    place = 5 + len(f"  needs: [{b}, ") - 4
    assert (unknown.code, f"needs.yaml:5:{place}: spec.needs.1: there is no job 'missing-{c}'" in unknown.err) == (
        6,
        True,
    ), unknown.err
