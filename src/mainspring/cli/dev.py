"""`mainspring dev`: a whole installation on this machine, and the live feed in this terminal."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import structlog

from mainspring import __version__
from mainspring.api.auth import Authenticator, digest, issue_token
from mainspring.api.service import PortTaken
from mainspring.cli.child_process import ChildProcess, StartFailed
from mainspring.cli.feed import feed_line, follow
from mainspring.cli.job_user import JobUser, choose_job_user
from mainspring.cli.output import echo
from mainspring.cli.private_file import write_private
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.cli.server_settings import check_watch_roots
from mainspring.client import AsyncClient
from mainspring.clock import SystemClock
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.process import hide_memory, run, stop_signal
from mainspring.service import Loops
from mainspring.store import jobs, sessions, shards, tokens
from mainspring.store.database_roles import grant_roles
from mainspring.store.db import Database
from mainspring.store.migrate import migrate, migrations
from mainspring.telemetry import logs
from mainspring.vault.keyring import new_key_line
from mainspring.worker.environment import check_names, function_environment, job_environment

log = structlog.get_logger()

FOLDER = ".mainspring"
JOBS = "jobs"
"""The folder whose Python files the worker loads, and reloads when they change."""
NO_FILE = ("--config", os.devnull)
"""The configuration of a server on this machine does not apply to `mainspring dev`."""
WORKER_TOKEN = "dev worker"
POLL_S = 0.02
START_TIMEOUT_S = 90.0


class Dev:
    """The database, the server and the worker of one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        slots: int,
        database_url: str | None,
        allow_net: tuple[str, ...] = (),
        pass_env: tuple[str, ...] = (),
        watch_roots: tuple[str, ...] = (),
        same_user: bool = False,
    ) -> None:
        self._folder = folder
        self._pass_env = pass_env
        self._same_user = same_user
        self._job_user: JobUser | None = None
        self._shared_user_reason = ""
        self._watched = [word for root in watch_roots for word in ("--watch-root", root)]
        self._allowed = [word for network in allow_net for word in ("--allow-net", network)]
        self._home = folder / FOLDER
        self._port = port
        self._slots = slots
        self._given_url = database_url
        self._postgres: EmbeddedServer | None = None
        self._children: list[ChildProcess] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._loops = Loops("dev")
        self._clock = SystemClock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        check_port(self._port)
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        choosing = asyncio.create_task(asyncio.to_thread(self._choose_job_user))
        took = await self._timed(self._start_database)
        await choosing
        applied = await migrate(self._database_url)
        await self._grant_roles()
        async with Database(self._database_url, size=2) as database:
            token, worker_token = await self._tokens(database)
            self._start_children(token, worker_token)
            await self._until_up(database)
            jobs, _ = await self._job_counts(database)
            link = await self._login_link(database, token)
        self._show(took, bool(applied), jobs, link)
        self._loops.forever("feed", lambda: self._feed(token))

    async def stop(self) -> None:
        """Stop the worker first, so that its results are settled, and the database last."""
        await self._loops.stop()
        for keeper in self._keepers:
            keeper.cancel()
        for child in reversed(self._children):
            await child.stop()
        if self._postgres is not None:
            await self._postgres.stop()
        if self._job_user is not None:
            self._job_user.remove()

    def _choose_job_user(self) -> None:
        if self._same_user:
            self._shared_user_reason = "--same-user"
        else:
            self._job_user, self._shared_user_reason = choose_job_user(self._folder)

    async def _start_database(self) -> None:
        if self._given_url is not None:
            self._database_url = self._given_url
            return
        self._postgres = EmbeddedServer(self._home)
        await self._postgres.start()
        self._database_url = self._postgres.dsn
        self._loops.forever("postgres", self._restart_database)

    async def _grant_roles(self) -> None:
        """Give the roles of the server what they need. With --database-url, its role is used for everything."""
        if (postgres := self._postgres) is not None:
            await grant_roles(postgres.dsn, server_url=postgres.server_dsn(), tenant_url=postgres.tenant_dsn())

    def _server_urls(self) -> dict[str, str]:
        if (postgres := self._postgres) is None:
            return {"MAINSPRING_DATABASE_URL": self._database_url}
        return {
            "MAINSPRING_DATABASE_URL": postgres.server_dsn(),
            "MAINSPRING_TENANT_DATABASE_URL": postgres.tenant_dsn(),
        }

    async def _restart_database(self) -> None:
        assert self._postgres is not None
        code = await self._postgres.wait_died()
        echo(f"  PostgreSQL died (exit code {code}); restarting it", err=True)
        await self._postgres.start()

    async def _tokens(self, database: Database) -> tuple[str, str]:
        """The admin token, which a file in the folder keeps, and a new token for the worker."""
        file = self._home / "token"
        async with database.transaction() as connection:
            kept = file.read_text().strip() if file.exists() else ""
            if not kept or await tokens.token_by_digest(connection, digest=digest(kept)) is None:
                await tokens.revoke_tokens_named(connection, tenant=DEFAULT_TENANT, name="admin")
                kept = await issue_token(connection, tenant=DEFAULT_TENANT, name="admin", scopes=("admin",))
            await tokens.revoke_tokens_named(connection, tenant=DEFAULT_TENANT, name=WORKER_TOKEN)
            worker = await issue_token(
                connection, tenant=DEFAULT_TENANT, name=WORKER_TOKEN, scopes=("worker",), grants=EVERYTHING
            )
            write_private(file, kept)
        (self._home / "url").write_text(self.url + "\n")
        return kept, worker

    def _key_file(self) -> Path:
        """The file with the master key of secrets; created at the first start."""
        file = self._home / "secret-keys"
        if not file.exists():
            write_private(file, new_key_line("key-1"))
        return file

    def _start_children(self, token: str, worker_token: str) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        level = os.environ.get("MAINSPRING_LOG", "error")
        self._children = [
            ChildProcess(
                "server",
                [
                    "serve",
                    *NO_FILE,
                    "--port",
                    str(self._port),
                    "--log",
                    level,
                    "--artifact-store",
                    str(self._home / "artifacts"),
                    "--secret-key-file",
                    str(self._key_file()),
                    "--public-url",
                    self.url,
                    *self._allowed,
                    *self._watched,
                ],
                env | self._server_urls(),
            ),
            ChildProcess(
                "worker",
                [
                    "worker",
                    *NO_FILE,
                    "--name",
                    "local",
                    "--slots",
                    str(self._slots),
                    "--drain",
                    "5",
                    "--log",
                    level,
                    "-m",
                    str((self._home.parent / JOBS).resolve()),
                    "--reload",
                    *self._allowed,
                    *[word for name in self._pass_env for word in ("--pass-env", name)],
                ],
                function_environment(job_environment(self._pass_env)) | {"MAINSPRING_URL": self.url},
                token=worker_token,
                user=self._job_user,
            ),
        ]
        self._keepers = [asyncio.create_task(self._keep(child)) for child in self._children]

    async def _keep(self, child: ChildProcess) -> None:
        while True:
            await child.run_once()

    async def _until_up(self, database: Database) -> None:
        """Wait until every shard has a live owner and the worker of this start is registered."""
        deadline = self._clock.monotonic() + START_TIMEOUT_S
        begun = self._clock.now_ms()
        while True:
            for keeper in self._keepers:
                if keeper.done():
                    await keeper
            async with database.connection() as connection:
                leases = await shards.list_shards(connection)
                owned = all(s.lease_expires_at is not None and s.lease_expires_at > s.now for s in leases)
                workers = await sessions.list_workers(connection, tenant=DEFAULT_TENANT)
            fresh = [
                w for w in workers if w.state in ("idle", "busy") and w.started_at.timestamp() * 1000 > begun - 60_000
            ]
            if owned and fresh:
                break
            if self._clock.monotonic() > deadline:
                raise StartFailed(f"not ready after {START_TIMEOUT_S:g} s; set MAINSPRING_LOG=info to see why")
            await asyncio.sleep(POLL_S)
        for child in self._children:
            child.was_up = True

    async def _job_counts(self, database: Database) -> tuple[int, int]:
        async with database.connection() as connection:
            return await jobs.job_counts(connection, tenant=DEFAULT_TENANT)

    async def _login_link(self, database: Database, token: str) -> str:
        auth = Authenticator(database)
        await auth.open()
        caller = await auth.by_token(token)
        key, _ = await auth.new_login_link(caller)
        return f"{self.url}/login?k={key}"

    async def _timed(self, work: Callable[[], Awaitable[None]]) -> float:
        started = self._clock.monotonic()
        await work()
        return self._clock.monotonic() - started

    def _show(self, took_s: float, new: bool, jobs: int, link: str) -> None:
        tick = click.style("✔", fg="green")
        data = os.path.relpath(self._home)
        postgres = (
            f"PostgreSQL {self._postgres.version.split('.')[0]} ({self._postgres.origin}) · data ./{data} (kept)"
            if self._postgres
            else "PostgreSQL of --database-url"
        )
        echo(f" mainspring {'.'.join(__version__.split('.')[:2])} · {postgres}")
        echo(
            f" {tick} database {took_s:.1f} s  {tick} schema {migrations()[-1].number}{' (new)' if new else ''}"
            f"  {tick} scheduler  {tick} worker local ({self._slots} slots)"
        )
        echo(f"   UI {link}\n   API {self.url}/api/v1   Docs /api/docs   Metrics /metrics")
        echo(f"   {self._jobs_line()}")
        if jobs:
            echo(f" {jobs} job{'s' if jobs != 1 else ''} scheduled. Executions:")
        else:
            echo(" Nothing scheduled yet. Try, in another terminal:")
            echo(f'   {command()} add hello --every 5s -- echo "hello from {{{{fire_at}}}}"')

    def _jobs_line(self) -> str:
        if self._job_user is not None:
            return f"Jobs run as uid {self._job_user.uid}: they cannot read the admin token, the database or the server"
        who = "root" if os.geteuid() == 0 else f"you (uid {os.geteuid()})"
        return (
            f"Jobs run as {who}: they can read the admin token and the database of this folder"
            f" ({self._shared_user_reason})"
        )

    async def _feed(self, token: str) -> None:
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        async with AsyncClient(self.url, token) as client:
            async for execution in follow(client):
                echo(" " + feed_line(execution, color=color))


def command() -> str:
    """The command to type: `mainspring` if it is on the PATH, else its path."""
    from shutil import which

    if which("mainspring"):
        return "mainspring"
    return os.path.relpath(Path(sys.executable).parent / "mainspring")


def check_port(port: int) -> None:
    """Fail early if the port is taken, the most frequent problem."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            raise PortTaken(
                f"cannot listen on 127.0.0.1:{port}: {error.strerror}; stop the other process, or choose another port"
                " with --port or MAINSPRING_PORT"
            ) from None


async def develop(dev: Dev) -> None:
    stop = stop_signal()
    starting = asyncio.create_task(dev.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await stop.wait()
        else:
            starting.cancel()
            await asyncio.wait({starting})
    except BaseException:
        await dev.stop()
        raise
    echo(" stopping…", err=True)
    await dev.stop()
    echo(" stopped; the data is kept", err=True)


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--port",
    envvar="MAINSPRING_PORT",
    show_envvar=True,
    default=7171,
    show_default=True,
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port of the API and the web UI.",
)
@click.option(
    "--slots",
    default=8,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Maximum concurrent attempts.",
)
@click.option(
    "--database-url",
    envvar="MAINSPRING_DATABASE_URL",
    show_envvar=True,
    metavar="URL",
    help="PostgreSQL to use instead of the bundled one.",
)
@click.option(
    "--allow-net",
    "allow_net",
    multiple=True,
    metavar="CIDR",
    envvar="MAINSPRING_ALLOW_NET",
    show_envvar=True,
    help="Private network that http tasks may call, such as 10.0.0.0/8. Repeatable.",
)
@click.option(
    "--pass-env",
    "pass_env",
    multiple=True,
    metavar="NAME",
    envvar="MAINSPRING_PASS_ENV",
    show_envvar=True,
    help="Environment variable that jobs inherit, or a prefix such as AWS_*. Repeatable.",
)
@click.option(
    "--watch-root",
    "watch_roots",
    multiple=True,
    metavar="[TENANT=]PLACE",
    envvar="MAINSPRING_WATCH_ROOT",
    show_envvar=True,
    callback=check_watch_roots,
    help="Folder or s3://BUCKET/PREFIX in which triggers may look for files. Repeatable.",
)
@click.option("--same-user", is_flag=True, help="As root, run jobs as root too. They can read the admin token.")
def dev(
    folder: Path,
    port: int,
    slots: int,
    database_url: str | None,
    allow_net: tuple[str, ...],
    pass_env: tuple[str, ...],
    watch_roots: tuple[str, ...],
    same_user: bool,
) -> None:
    """Start everything on this machine: database, scheduler, worker, web UI.

    Loads the Python files in FOLDER/jobs, and reloads them when they change. Keeps its data in FOLDER/.mainspring.
    Started by root, it runs jobs as another user, who can read FOLDER and cannot write to it.
    """
    hide_memory()
    logs.configure(os.environ.get("MAINSPRING_LOG", "warning"))
    check_names(pass_env)
    run(
        develop(
            Dev(
                folder,
                port=port,
                slots=slots,
                database_url=database_url,
                allow_net=allow_net,
                pass_env=pass_env,
                watch_roots=watch_roots,
                same_user=same_user,
            )
        )
    )
