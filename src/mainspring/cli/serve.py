"""`mainspring serve`: the one place where the stages are wired together."""

from __future__ import annotations

import asyncio
import os

import click
import structlog

from mainspring.announce import Announcer
from mainspring.api.app import build
from mainspring.api.auth import Authenticator, issue_token
from mainspring.api.context import Context
from mainspring.api.live import Live
from mainspring.api.service import HttpServer
from mainspring.config import ServeConfig, parse_roles, unknown_settings
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.intake.duties import Duties
from mainspring.intake.executions import Submitter
from mainspring.intake.runs import Runs
from mainspring.process import die_with_parent, run, stop_signal
from mainspring.results.rescue import Rescue
from mainspring.results.settle import Settler
from mainspring.scheduler.service import Scheduler
from mainspring.service import Service
from mainspring.store import tokens
from mainspring.store.bus import PostgresBus
from mainspring.store.db import AWAY, Database
from mainspring.store.definitions import Definitions
from mainspring.store.migrate import migrate
from mainspring.telemetry import logs
from mainspring.web.app import routes as pages
from mainspring.web.gate import lost

log = structlog.get_logger()

DEFAULT_TENANT = 1


class Server:
    """One server process: its services, started in order and stopped in reverse."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.database = Database(config.database_url)
        self.bus = PostgresBus(self.database)
        self.announcer = Announcer(self.bus)
        definitions = Definitions(self.database)
        self.settler = Settler(self.database, definitions, self.announcer)
        self.scheduler: Scheduler | None = None
        self.http: HttpServer | None = None
        self.context: Context | None = None
        self._services: list[Service] = [self.bus, self.announcer]
        if "scheduler" in config.roles:
            self.scheduler = Scheduler(self.database, self.bus, lease_s=config.shard_lease_s)
            rescue = Rescue(self.database, self.settler, leads=self.scheduler.leads)
            duties = Duties(self.database, self.bus, leads=self.scheduler.leads, announcer=self.announcer)
            self._services += [self.scheduler, rescue, duties]
        if "api" in config.roles:
            self.context = Context(
                database=self.database,
                auth=Authenticator(self.database),
                live=Live(self.database, self.bus),
                submitter=Submitter(self.database, definitions),
                dispatcher=Dispatcher(self.database, self.bus, definitions, self.announcer),
                heartbeats=Heartbeats(self.database, lease_s=config.session_lease_s),
                settler=self.settler,
                announcer=self.announcer,
                runs=Runs(self.database, self.announcer),
                session_lease_s=config.session_lease_s,
            )
            app = build(self.context, pages=pages, lost=lost)
            self.http = HttpServer(app, host=config.host, port=config.port)
            self._services += [self.http, self.context.dispatcher, self.context.live]

    async def start(self) -> None:
        await self.database.open()
        if self.context is not None:
            await self.context.auth.open()
        for service in self._services:
            await service.start()
        for service in self._services:
            await service.ready()

    async def stop(self) -> None:
        """Streams and long polls end first, then requests, then the loops; shards are handed over."""
        for service in reversed(self._services):
            try:
                await service.drain()
                await service.stop()
            except Exception:
                log.exception("a service did not stop cleanly", service=type(service).__name__)
        await self.database.close()


async def wait_for_database(url: str) -> None:
    """Brings the schema up to date, however long the database takes to appear."""
    wait = 0.2
    while True:
        try:
            for migration in await migrate(url):
                log.info("migrated", number=migration.number, name=migration.name)
            return
        except AWAY as error:
            log.warning("waiting for the database", error=str(error) or type(error).__name__, wait_s=wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)


async def first_token(database: Database) -> str | None:
    """The admin token of a new installation; None if it has one."""
    async with database.transaction() as connection:
        if await tokens.has_tokens(connection):
            return None
        return await issue_token(connection, tenant=DEFAULT_TENANT, name="bootstrap", scopes=("admin", "worker"))


async def serve_until_stopped(config: ServeConfig, *, greet: bool) -> None:
    stop = stop_signal()
    await wait_for_database(config.database_url)
    server = Server(config)
    async with Database(config.database_url, size=1) as database:
        token = await first_token(database)
    if token is not None:
        click.echo(f"First start. The admin token, shown only now:\n\n  {token}\n")
    try:
        await server.start()
        if server.http is not None and greet:
            click.echo(f"mainspring serves http://{config.host}:{server.http.port}", err=True)
        await stop.wait()
    finally:
        await server.stop()


@click.command()
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", required=True, help="PostgreSQL 14 or later.")
@click.option("--roles", envvar="MAINSPRING_ROLES", default="api,scheduler", show_default=True)
@click.option("--host", envvar="MAINSPRING_HOST", default="127.0.0.1", show_default=True)
@click.option("--port", envvar="MAINSPRING_PORT", default=7171, show_default=True, type=click.IntRange(0, 65535))
@click.option("--session-lease", default=20.0, show_default=True, help="Seconds until a silent worker is lost.")
@click.option(
    "--shard-lease",
    default=5.0,
    show_default=True,
    type=click.FloatRange(1, 60),
    help="Seconds until a scheduler that hangs or is cut off is replaced; a dead one is at once.",
)
@click.option("--log", "level", envvar="MAINSPRING_LOG", default="info", type=click.Choice(list(logs.LEVELS)))
@click.option("--parent", type=int, hidden=True, help="End when this process does.")
def serve(
    database_url: str, roles: str, host: str, port: int, session_lease: float, shard_lease: float, level: str,
    parent: int | None,
) -> None:  # fmt: skip
    """Start a server against a PostgreSQL database."""
    if parent is not None:
        die_with_parent(parent)
    logs.configure(level)
    for sentence in unknown_settings(os.environ):
        log.warning(sentence)
    config = ServeConfig(
        database_url=database_url,
        roles=parse_roles(roles),
        host=host,
        port=port,
        session_lease_s=session_lease,
        shard_lease_s=shard_lease,
    )
    run(serve_until_stopped(config, greet=parent is None))
