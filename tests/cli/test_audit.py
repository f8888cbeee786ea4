"""`mainspring audit` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.duties.audit_chain import chain_pending, sign_heads
from tests.conftest import Cluster
from tests.support.shell import Shell

pytestmark = pytest.mark.anyio


async def test_what_was_done_is_listed_with_who_and_why(cluster: Cluster) -> None:
    shell = Shell(cluster)
    async with cluster.client() as client:
        for name in ("audited", "other"):
            await client.create_job(JobSpec(name=name, task=NoopTask()))
        await client.trigger("audited")
    assert "marked as succeeded" in (await shell("jobs", "force-complete", "audited", "--reason", "by hand")).output
    await shell("jobs", "skip", "audited", "--reason", "nothing lives", code=5)
    await shell("jobs", "pause", "other", "--reason", "quiet")
    found = (await shell("audit", "list")).output
    assert found.index("job.pause") < found.index("job.force_complete") and "by hand" in found
    found = (await shell("audit", "list", "--subject", "audited", "-o", "wide")).output
    assert "job.force_complete" in found and "quiet" not in found and '"freed":0' in found
    assert "job.pause" in (await shell("audit", "list", "--actor", "test admin", "--action", "job.pause")).output
    assert "no audit entries" in (await shell("audit", "list", "--actor", "nobody")).output


async def test_the_log_is_verified_and_exported(cluster: Cluster, tmp_path: Path) -> None:
    shell = Shell(cluster)
    async with cluster.client() as client:
        await client.create_job(JobSpec(name="chained", task=NoopTask()))
    await chain_pending(cluster.database)
    await sign_heads(cluster.database, cluster.context.vault)
    said = (await shell("audit", "verify")).output
    assert "entries intact, signed up to entry" in said
    head = said.partition("head ")[2].strip()
    assert "entries intact" in (await shell("audit", "verify", "--head", head)).output
    assert json.loads((await shell("audit", "verify", "-o", "json")).output)["intact"] is True
    assert "entries intact" in (await shell("audit", "verify", "--cluster")).output
    file = tmp_path / "audit.jsonl"
    assert f"written to {file}" in (await shell("audit", "export", "--to", str(file))).output
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert next(line["seq"] for line in lines if "seq" in line) == 1 and "head" in lines[-1]
    rest = (await shell("audit", "export", "--after", "1")).output
    assert json.loads(rest.splitlines()[0])["seq"] == 2
    broken = await shell("audit", "verify", "--head", f"1:{'0' * 64}", code=1)
    assert "tampered with (rewritten): entry 1" in broken.output
    await shell("audit", "verify", "--head", "x", code=6)
