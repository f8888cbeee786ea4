"""Chains and fan-outs of functions: from the call that starts them to the first line of the last function."""

from __future__ import annotations

from harness import quantile
from peers.processes import Peer, until_times
from peers.report import US
from peers.run import Run

FLOWS = {"chain": 20, "fan": 100}


async def flows(run: Run, times: int) -> None:
    for kind, n in FLOWS.items():

        async def ours(kind: str = kind, n: int = n) -> dict[str, float]:
            return {"s": quantile(await run.system.flow(run.file(), kind, n, times), 0.5)}

        await run.measure(kind, US, ours)
        for peer in run.peers:
            if peer.definition.flows:

                async def theirs(peer: Peer = peer, kind: str = kind, n: int = n) -> dict[str, float]:
                    file = run.file()
                    async with peer.used_once() as client, peer.working("latency", file):
                        await client.recording(file).ask("flow", kind, n, times)
                        found = await until_times(file, times)
                    return {"s": quantile([at - sent for sent, at in found], 0.5)}

                await run.measure(kind, peer.definition.name, theirs)
