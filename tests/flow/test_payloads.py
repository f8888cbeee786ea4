"""Payloads of 10 KB pass unchanged through submission, queue, worker, result and history."""

from __future__ import annotations

import asyncio
import hashlib
import random
import string

import pytest

from mainspring import wire
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

SIZE, COUNT, BATCH = 10_240, 120, 60
SCRIPT = 'printf %s "$1" | sha256sum'


def payload(n: int) -> str:
    """Text with many different characters, so that compression cannot shrink it."""
    rng = random.Random(n)
    text = "".join(rng.choices(string.ascii_letters + string.digits + "äßж中", k=SIZE))
    return text.encode()[:SIZE].decode(errors="ignore")


@pytest.mark.requirement(57)
async def test_ten_kilobytes_arrive_as_they_were_sent(cluster: Cluster) -> None:
    spec = {"name": "digest", "task": {"kind": "shell", "argv": ["sh", "-c", SCRIPT, "sh", "{{params.data}}"]}}
    sent = [payload(n) for n in range(COUNT)]
    assert all(SIZE - 2 <= len(text.encode()) <= SIZE for text in sent)
    async with cluster.client() as client, cluster.worker(slots=16):
        await client.create_job(spec)
        batches = [
            [wire.BatchItem(job="digest", params={"data": text}) for text in sent[first : first + BATCH]]
            for first in range(0, COUNT, BATCH)
        ]
        answers = await asyncio.gather(*[client.submit(batch) for batch in batches])
        ids = [item.execution_id for answer in answers for item in answer.items]
        assert None not in ids

        async def ended(execution: object, text: str) -> None:
            found = await client.wait(str(execution), timeout_s=300)
            assert (found.state, found.params) == ("succeeded", {"data": text})
            digest = hashlib.sha256(text.encode()).hexdigest()
            assert (await client.logs(found.execution_id)).chunks[0].text.split()[0] == digest

        for execution, text in zip(ids, sent, strict=True):
            await ended(execution, text)
