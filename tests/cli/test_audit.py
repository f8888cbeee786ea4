"""`mainspring audit` against a real server."""

from __future__ import annotations

import pytest

from mainspring.domain.job import JobSpec, NoopTask
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
