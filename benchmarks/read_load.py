"""A load generator in a process of its own: reads of jobs and executions over raw sockets, with some writes.

Usage: python benchmarks/read_load.py, with a JSON object on standard input: host, port, token, connections, seconds,
jobs (names), executions (ids by job) and writes (share of requests). Prints a JSON object.
After each write, the same connection reads what it wrote.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop


@dataclass
class Tally:
    reads_ms: list[float] = field(default_factory=list)
    writes: int = 0
    stale: int = 0
    errors: int = 0


class Connection:
    """One keep-alive connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer = reader, writer
        self._head = f" HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n".encode()

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Length: {len(body)}\r\n".encode() if body else b""
        self._writer.write(f"{method} {path}".encode() + self._head + length + b"\r\n" + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, _, rest = head.partition(b"content-length: ")
        return int(head[9:12]), await self._reader.readexactly(int(rest.partition(b"\r\n")[0] or 0))


async def drive(given: dict[str, Any], tally: Tally, until: float, seed: int) -> None:
    draw = random.Random(seed)
    connection = Connection(*await asyncio.open_connection(given["host"], given["port"]), given["token"])
    while time.monotonic() < until:
        job = draw.choice(given["jobs"])
        if draw.random() < given["writes"]:
            await _write(connection, tally, draw, job)
            continue
        path = f"/api/v1/jobs/{job}"
        if draw.random() < 0.3 and given["executions"].get(job):
            path = f"/api/v1/executions/{draw.choice(given['executions'][job])}"
        begun = time.perf_counter()
        status, _ = await connection.request("GET", path)
        tally.reads_ms.append((time.perf_counter() - begun) * 1000)
        tally.errors += status != 200


async def _write(connection: Connection, tally: Tally, draw: random.Random, job: str) -> None:
    """Trigger the job or edit it, and read it: the response must show that, or what others did since."""
    tally.writes += 1
    triggers = draw.random() < 0.7
    if triggers:
        status, body = await connection.request("POST", f"/api/v1/jobs/{job}/trigger", b"{}")
    else:
        edit = b'{"description": "%d"}' % draw.getrandbits(60)
        status, body = await connection.request("PATCH", f"/api/v1/jobs/{job}", edit)
    begun = time.perf_counter()
    _, shown = await connection.request("GET", f"/api/v1/jobs/{job}")
    tally.reads_ms.append((time.perf_counter() - begun) * 1000)
    if status not in (200, 201):
        tally.errors += 1
        return
    written, read = json.loads(body), json.loads(shown)
    if triggers:
        tally.stale += written["execution_id"] not in {e["execution_id"] for e in read["last"]}
    else:
        tally.stale += read["version"] < written["version"]


async def main() -> None:
    given, tally = json.load(sys.stdin), Tally()
    begun = time.monotonic()
    drivers = [drive(given, tally, begun + given["seconds"], n) for n in range(given["connections"])]
    await asyncio.gather(*drivers)
    ordered = sorted(tally.reads_ms)
    figures = {
        "per_s": len(ordered) / (time.monotonic() - begun),
        "p50_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[len(ordered) * 99 // 100],
        "reads": len(ordered),
        "writes": tally.writes,
        "stale": tally.stale,
        "errors": tally.errors,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
