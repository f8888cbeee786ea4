"""The generated TypeScript and Go clients: current, compiled, and used against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tools.clients import texts
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

TYPESCRIPT, GO = ROOT / "clients" / "typescript", ROOT / "clients" / "go"
SCRIPT = """
import { Client, MainspringError } from "./mainspring.js";
const [url, token, name] = process.argv.slice(2);
const client = new Client(url, token);
const job = await client.jobsCreate({ name, task: { kind: "shell", argv: ["echo", "hello"] } });
const options = { idempotencyKey: "once" };
const first = await client.jobsTrigger(name, {}, options);
const second = await client.jobsTrigger(name, {}, options);
let execution = first;
while (execution.finished_at == null) {
  execution = await client.executionsGet(first.execution_id, { query: { wait: "30s" } });
}
let code = "";
try {
  await client.jobsGet("none/such name");
} catch (error) {
  if (!(error instanceof MainspringError)) throw error;
  code = error.problem.code;
}
const found = { version: job.version, same: first.execution_id === second.execution_id, state: execution.state, code };
console.log(JSON.stringify(found));
"""
PROGRAM = """
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"example.com/mainspring"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client, name := mainspring.New(os.Args[1], os.Args[2]), os.Args[3]
	task := mainspring.ShellTask{Kind: "shell", Argv: []string{"echo", "hello"}}
	job := must(client.JobsCreate(ctx, mainspring.JobSpec{Name: name, Task: task}))
	once := mainspring.IdempotencyKey("once")
	first := must(client.JobsTrigger(ctx, name, mainspring.RunNow{}, once))
	second := must(client.JobsTrigger(ctx, name, mainspring.RunNow{}, once))
	execution := first
	for execution.FinishedAt == nil {
		execution = must(client.ExecutionsGet(ctx, first.ExecutionId, mainspring.Query("wait", "30s")))
	}
	_, err := client.JobsGet(ctx, "none/such name")
	var failure *mainspring.Error
	if !errors.As(err, &failure) {
		panic(err)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"version": job.Version, "same": first.ExecutionId == second.ExecutionId,
		"state": execution.State, "code": failure.Code,
	})
}
"""
EXPECTED = {"version": 1, "same": True, "state": "succeeded", "code": "not_found"}


def test_the_clients_are_current() -> None:
    for path, text in texts().items():
        assert path.read_text(encoding="utf-8") == text, f"run `make clients` and commit {path.relative_to(ROOT)}"


def needs(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed: the generated client cannot be compiled here")


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled TypeScript client."""
    needs("node", "npm")
    folder = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(TYPESCRIPT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    fetched = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if fetched.returncode:
        pytest.skip("npm cannot fetch the TypeScript compiler here: the generated client cannot be compiled")
    run("npx", "--no-install", "tsc", "--noEmit", folder=folder)
    run("npx", "--no-install", "tsc", folder=folder)
    return folder / "dist"


async def outcome(cluster: Cluster, *command: str, folder: Path) -> dict[str, Any]:
    """What a program prints that creates a job, runs it and waits for it."""
    name = f"job-{uuid4()}"
    arguments = (cluster.url, cluster.token, name)
    async with cluster.worker(), cluster.client() as client:
        printed = await asyncio.to_thread(run, *command, *arguments, folder=folder)
        await only_one_execution(client, name)
    found: dict[str, Any] = json.loads(printed)
    return found


async def only_one_execution(client: AsyncClient, job: str) -> None:
    assert len((await client.history(job)).items) == 1


async def test_typescript(cluster: Cluster, compiled: Path) -> None:
    (compiled / "script.mjs").write_text(SCRIPT)
    assert await outcome(cluster, "node", "script.mjs", folder=compiled) == EXPECTED


async def test_go(cluster: Cluster, tmp_path: Path) -> None:
    needs("go")
    (tmp_path / "main.go").write_text(PROGRAM)
    (tmp_path / "go.mod").write_text(
        "module example.com/program\n\ngo 1.21\n\nrequire example.com/mainspring v0.0.0\n\n"
        f"replace example.com/mainspring => {os.fspath(GO)}\n"
    )
    run("go", "vet", "./...", folder=GO)
    run("go", "vet", "./...", folder=tmp_path)
    run("go", "build", "-o", "program", ".", folder=tmp_path)
    assert not run("gofmt", "-l", ".", folder=GO)
    assert await outcome(cluster, "./program", folder=tmp_path) == EXPECTED
