"""Cost of tenants on the path of a submission: role, quota, limits, secret, key and row-level security, all together.

The same function is submitted, at a fixed rate, by an administrator on a server that uses the role of the engine, and
by a user of a tenant on a server with row-level security. The two take turns in blocks, so that the ratios hold on a
busy machine. Counted is the CPU time of all processes, the client included, and the time from the request to the end
of the function.

make bench ARGS=tenant_submit
python benchmarks/tenant_submit.py --quick       # some seconds: for checking, publishes nothing
python benchmarks/tenant_submit.py --parts       # each part alone, too: which of them costs what
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import Machine, free_port, machine, publish, quantile

from mainspring import wire
from mainspring.cli.private_file import write_private
from mainspring.client import AsyncClient
from mainspring.store.database_roles import grant_roles
from mainspring.vault.keyring import new_key_line

QUICK, PARTS = "--quick" in sys.argv, "--parts" in sys.argv
BLOCK = int(os.environ.get("BLOCK", "30" if QUICK else "100"))
ROUNDS = int(os.environ.get("ROUNDS", "2" if QUICK else "15"))
RATE = 50
GOAL = 1.15
JOB, DECLARED = "submitted", "done"
FUNCTION = """
import os
import time

import mainspring as ms


@ms.job
def done(sent: float = 0.0, key: str = "") -> None:
    with open(os.environ["BENCH_FILE"], "a") as file:
        file.write(f"{sent} {time.time()}\\n")
"""


@dataclass
class Variant:
    """A way to submit, with a server and a worker of its own, and what its blocks took."""

    name: str
    quota: bool = False
    cap: int | None = None  # most executions that run at once
    secret: bool = False
    row_level: bool = False
    keyed: bool = False
    client: AsyncClient | None = None
    file: Path = Path()
    cpu_s: float = 0.0
    latency_ms: list[float] = field(default_factory=list)

    async def submit(self, sent: float) -> None:
        assert self.client is not None
        if self.keyed:
            await self.client.trigger(JOB, wire.RunNow(params={"sent": sent}))
        else:  # without the key that the client adds
            path, body = f"/api/v1/jobs/{JOB}/trigger", wire.RunNow(params={"sent": sent})
            await self.client._transport.request(wire.Execution, "POST", path, body=body)

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


ADMIN, TENANT = "administrator", "user of a tenant"
ALL = {
    ADMIN: Variant(ADMIN),
    TENANT: Variant(TENANT, quota=True, secret=True, row_level=True, keyed=True),
    "row-level security only": Variant("row-level security only", row_level=True),
    "quota only": Variant("quota only", quota=True),
    "key only": Variant("key only", keyed=True),
    "secret only": Variant("secret only", secret=True),
    "cap only": Variant("cap only", cap=1000),
}
"""The parts are those of a tenant's user without quotas, with the engine's role, but for what they name.

A cap of running executions is not part of the path of a submission: they are queued, and claimed under a lock.
"""


class Bench:
    def __init__(self, target: Machine, folder: Path) -> None:
        self.target, self.folder = target, folder
        self.keys = folder / "secret-keys"
        write_private(self.keys, new_key_line("bench"))

    async def open(self, variant: Variant) -> None:
        """Start the server and the worker of a variant, and create its job."""
        number = list(ALL).index(variant.name)
        url = f"http://127.0.0.1:{free_port()}"
        env = {"MAINSPRING_DATABASE_URL": self.target.postgres.server_dsn()}
        env["MAINSPRING_SECRET_KEY_FILE"] = str(self.keys)
        env["MAINSPRING_RATE_LIMIT"] = "10000" if variant.quota else "0"
        if variant.row_level:
            env["MAINSPRING_TENANT_DATABASE_URL"] = self.target.postgres.tenant_dsn()
        self.target.spawn(variant.name, "serve", "--port", url.rpartition(":")[2], **env)
        async with AsyncClient(url, self.target.token) as admin:
            await until(lambda: answers(admin))
            tenant = "default" if variant.name == ADMIN else f"tenant{number}"
            token = self.target.token
            if variant.name != ADMIN:
                await admin.create_tenant(self.tenant(variant, tenant))
                token = (await admin.issue_tenant_token(tenant, wire.NewToken(name="admin", role="admin"))).token
        async with AsyncClient(url, token) as owner:
            worker = wire.NewWorkerToken(name="worker", queues=["*"], labels=["*"])
            worker_token = (await owner.issue_worker_token(worker)).token
            if variant.secret:
                await owner.put_secret("db", wire.SecretSpec(value="correct horse battery", jobs=[JOB]))
            variant.file = self.folder / f"times-{number}"
            module = self.folder / "tenant_functions.py"
            module.write_text(FUNCTION)
            self.target.spawn(
                variant.name,
                *("worker", "--slots", "20", "--name", f"bench{number}", "-m", str(module), "--pass-env", "BENCH_FILE"),
                MAINSPRING_URL=url,
                MAINSPRING_TOKEN=worker_token,
                BENCH_FILE=str(variant.file),
            )
            await until(lambda: declared(owner))
            function = (await owner.job(DECLARED)).spec.task
            args = {"key": "secret://db"} if variant.secret else {}
            task = {"kind": "python", "function": getattr(function, "function", ""), "args": args}
            await owner.create_job({"name": JOB, "task": task, "params": {"sent": {"type": "number"}}})
            variant.client = await self.caller(owner, variant, url, token)

    def tenant(self, variant: Variant, name: str) -> wire.NewTenant:
        if not variant.quota:
            return wire.NewTenant(name=name, cap=variant.cap)
        return wire.NewTenant(name=name, max_jobs=1000, max_queued=100_000, schedules_per_hour=1000)

    async def caller(self, owner: AsyncClient, variant: Variant, url: str, token: str) -> AsyncClient:
        """A client with the token of a user, which is restricted to a queue."""
        if variant.name != ADMIN:
            await owner.create_user(wire.NewUser(name="ann", role="submitter"))
            token = (await owner.issue_token(wire.NewToken(name="ci", user="ann", queues=["short"]))).token
        client = AsyncClient(url, token)
        await client.__aenter__()
        return client

    async def block(self, variant: Variant, *, counted: bool) -> None:
        """Submit a block at a fixed rate, and wait until all functions have ended."""
        before, own, lines = self.target.cpu_s(), time.process_time(), len(variant.lines())
        began, pending = time.monotonic(), []
        for number in range(BLOCK):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            pending.append(asyncio.create_task(variant.submit(time.time())))
        await asyncio.gather(*pending)
        own = time.process_time() - own
        await until(lambda: has_lines(variant, lines + BLOCK))
        if counted:
            after = self.target.cpu_s()
            variant.cpu_s += own + sum(after[role] - before[role] for role in after)
            times = [line.split() for line in variant.lines()[lines:]]
            variant.latency_ms += [(float(ended) - float(sent)) * 1000 for sent, ended in times]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 120
    while not await condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the condition did not become true within two minutes")
        await asyncio.sleep(0.05)


async def answers(client: AsyncClient) -> bool:
    try:
        await client.whoami()
    except Exception:
        return False
    return True


async def declared(client: AsyncClient) -> bool:
    return any(job.name == DECLARED for job in (await client.jobs()).items)


async def has_lines(variant: Variant, count: int) -> bool:
    return len(variant.lines()) >= count


def report(variants: list[Variant]) -> None:
    base = variants[0]
    submitted = BLOCK * ROUNDS
    lines = [
        f"{submitted} submissions of each, {RATE} per second. The goal is a ratio of at most {GOAL}.",
        "",
        "| | CPU, ms | CPU, ratio | median, ms | median, ratio | goal |",
        "|---|---|---|---|---|---|",
    ]
    figures = {}
    for variant in variants:
        cpu, median = variant.cpu_s / submitted * 1000, quantile(variant.latency_ms, 0.5)
        ratios = variant.cpu_s / base.cpu_s, median / quantile(base.latency_ms, 0.5)
        goal = "" if variant is base else f"{GOAL}: {'reached' if max(ratios) <= GOAL else 'missed'}"
        lines.append(f"| {variant.name} | {cpu:.2f} | {ratios[0]:.2f} | {median:.1f} | {ratios[1]:.2f} | {goal} |")
        figures |= {f"{variant.name}, cpu": round(ratios[0], 3), f"{variant.name}, median": round(ratios[1], 3)}
    publish(
        "tenant_submit", lines, figures, written=not (QUICK or PARTS or "BLOCK" in os.environ or "ROUNDS" in os.environ)
    )


async def main() -> None:
    variants = list(ALL.values()) if PARTS else [ALL[ADMIN], ALL[TENANT]]
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        async with machine() as target:
            postgres = target.postgres
            await grant_roles(postgres.dsn, server_url=postgres.server_dsn(), tenant_url=postgres.tenant_dsn())
            bench = Bench(target, Path(folder))
            for variant in variants:
                await bench.open(variant)
            for number in range(ROUNDS + 1):  # the first round warms up
                for variant in variants:
                    await bench.block(variant, counted=number > 0)
            report(variants)
            for variant in variants:
                assert variant.client is not None
                await variant.client.__aexit__(None, None, None)


if __name__ == "__main__":
    asyncio.run(main())
