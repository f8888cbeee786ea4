"""`mainspring serve`: the one place where the stages are wired together."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click
import structlog

from mainspring.alerts.deliver import Deliverer
from mainspring.alerts.evaluate import Watch
from mainspring.alerts.measure import Measure
from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.auth import Authenticator, issue_token
from mainspring.api.service import HttpServer
from mainspring.api.status import build_status
from mainspring.config import ARTIFACT_STORE, ServeConfig, parse_roles, unknown_settings
from mainspring.domain.address import read_networks
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid
from mainspring.domain.placement.resources import parse_amount
from mainspring.duties.service import Duties
from mainspring.process import die_with_parent, raise_file_limit, run, stop_signal
from mainspring.results.rescue import Rescue
from mainspring.results.settle import Settler
from mainspring.scheduler.service import Scheduler
from mainspring.service import Loops, Service
from mainspring.store import tokens
from mainspring.store.bus import PostgresBus
from mainspring.store.db import AWAY, Database
from mainspring.store.definitions import Definitions
from mainspring.store.migrate import migrate
from mainspring.store.subscriptions import Subscriptions
from mainspring.store.warmup import rehearse
from mainspring.telemetry import logs

if TYPE_CHECKING:
    from mainspring.api.context import Context

log = structlog.get_logger()

DEFAULT_TENANT = 1
FEW_FILES = 4096


class Server:
    """One server process: its services, started in order and stopped in reverse."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.database = Database(config.database_url)
        self.bus = PostgresBus(self.database)
        self.announcer = Announcer(self.bus)
        definitions = Definitions(self.database)
        subscriptions = Subscriptions(self.database, self.bus)
        dispatcher = None
        if "api" in config.roles:
            from mainspring.dispatch.service import Dispatcher

            dispatcher = Dispatcher(self.database, self.bus, definitions, self.announcer)
        self.settler = Settler(
            self.database,
            definitions,
            self.announcer,
            subscriptions=subscriptions,
            handoff=None if dispatcher is None else dispatcher.handoff,
        )
        self._sender = sender = Sender(read_networks(config.allow_net), apprise=config.apprise)
        self.scheduler: Scheduler | None = None
        self.http: HttpServer | None = None
        self.context: Context | None = None
        measure = Measure(self.database, roles=config.roles)
        self._services: list[Service] = [self.bus, self.announcer, subscriptions, measure]
        if "scheduler" in config.roles:
            self.scheduler = Scheduler(self.database, self.bus, lease_s=config.shard_lease_s)
            rescue = Rescue(
                self.database,
                self.settler,
                leads=self.scheduler.leads,
                keep_dead_letters_s=config.keep_dead_letters_s,
                keep_runs_s=config.keep_runs_s,
                keep_history_s=config.keep_history_s,
                keep_output_s=config.keep_output_s,
            )
            duties = Duties(self.database, self.bus, leads=self.scheduler.leads, announcer=self.announcer)
            watch = Watch(self.database, self.bus, subscriptions, leads=self.scheduler.leads)
            deliverer = Deliverer(self.database, self.bus, sender, leads=self.scheduler.leads)
            self._services += [self.scheduler, rescue, duties, watch, deliverer]
        auth = self._auth = Authenticator(self.database)
        if dispatcher is not None:
            from mainspring.cli.api_process import Front  # a process without the API need not load it

            front = Front(
                config,
                self.database,
                self.bus,
                auth=auth,
                definitions=definitions,
                dispatcher=dispatcher,
                settler=self.settler,
                announcer=self.announcer,
                sender=sender,
            )
            self.context, self.http = front.context, front.http
            self._services += front.services
        elif config.port is not None:
            self.http = HttpServer(build_status(self.database, auth), host=config.host, port=config.port)
            self._services.append(self.http)

    async def start(self) -> None:
        await self.database.open()
        await self._auth.open()
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
        await self._sender.close()
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
    stop, rehearsal = stop_signal(), Loops("serve")
    await wait_for_database(config.database_url)
    server = Server(config)
    async with Database(config.database_url, size=1) as database:
        token = await first_token(database)
    if token is not None:
        click.echo(f"First start. The admin token, shown only now:\n\n  {token}\n")
    try:
        await server.start()
        if server.http is not None and greet:
            what = "" if "api" in config.roles else " /healthz, /readyz and /metrics at"
            click.echo(f"mainspring serves{what} http://{config.host}:{server.http.port}", err=True)
        if "api" in config.roles:
            rehearsal.spawn(rehearse(server.database), "rehearse")
        await stop.wait()
    finally:
        await rehearsal.stop()
        await server.stop()


def _days(text: str) -> float:
    """A duration on the command line, in seconds."""
    if (seconds := parse_duration(text)) < 1:
        raise ValueError(f"{text!r} is too short")
    return seconds


@click.command()
@click.option("--database-url", envvar="MAINSPRING_DATABASE_URL", required=True, help="PostgreSQL 14 or later.")
@click.option("--roles", envvar="MAINSPRING_ROLES", default="api,scheduler", show_default=True)
@click.option("--host", envvar="MAINSPRING_HOST", default="127.0.0.1", show_default=True)
@click.option(
    "--port",
    envvar="MAINSPRING_PORT",
    type=click.IntRange(0, 65535),
    help="Of the API; 7171 if not given. A process without it serves /healthz, /readyz and /metrics there, if given.",
)
@click.option("--session-lease", default=20.0, show_default=True, help="Seconds until a silent worker is lost.")
@click.option(
    "--shard-lease",
    default=5.0,
    show_default=True,
    type=click.FloatRange(1, 60),
    help="Seconds until a scheduler that hangs or is cut off is replaced; a dead one is at once.",
)
@click.option(
    "--keep-dead-letters",
    envvar="MAINSPRING_KEEP_DEAD_LETTERS",
    default="14d",
    show_default=True,
    type=_days,
    help="How long they wait for a person.",
)
@click.option(
    "--keep-runs",
    envvar="MAINSPRING_KEEP_RUNS",
    default="90d",
    show_default=True,
    type=_days,
    help="How long runs of workflows and backfills are kept after their end.",
)
@click.option(
    "--keep-history",
    envvar="MAINSPRING_KEEP_HISTORY",
    default="90d",
    show_default=True,
    type=_days,
    help="How long executions are kept after their end; whole days go at once.",
)
@click.option(
    "--keep-output",
    envvar="MAINSPRING_KEEP_OUTPUT",
    default="30d",
    show_default=True,
    type=_days,
    help="How long what they wrote is kept.",
)
@click.option(
    "--artifact-store",
    envvar="MAINSPRING_ARTIFACT_STORE",
    default=ARTIFACT_STORE,
    show_default=True,
    metavar="FOLDER|URL",
    help="Where artifacts are kept, the same for all api processes; s3://BUCKET/PREFIX needs the extra `s3`.",
)
@click.option("--artifact-limit", default="1Gi", show_default=True, metavar="SIZE", help="Of one execution.")
@click.option("--artifact-days", default=30.0, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option(
    "--allow-net",
    "allow_net",
    multiple=True,
    metavar="CIDR",
    envvar="MAINSPRING_ALLOW_NET",
    help="A network that notices may be sent to, besides the public ones. May be given several times.",
)
@click.option(
    "--rate-limit",
    envvar="MAINSPRING_RATE_LIMIT",
    default=500.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Requests a second that each api process takes of a token; 0: any number. Workers are not counted.",
)
@click.option(
    "--schedule-quota",
    envvar="MAINSPRING_SCHEDULE_QUOTA",
    default=100_000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Schedules that each token may make in an hour; 0: any number.",
)
@click.option("--apprise", is_flag=True, help="Allow channels of the kind apprise, whose addresses nobody checks.")
@click.option("--log", "level", envvar="MAINSPRING_LOG", default="info", type=click.Choice(list(logs.LEVELS)))
@click.option("--parent", type=int, hidden=True, help="End when this process does.")
def serve(
    database_url: str,
    roles: str,
    host: str,
    port: int | None,
    session_lease: float,
    shard_lease: float,
    keep_dead_letters: float,
    keep_runs: float,
    keep_history: float,
    keep_output: float,
    artifact_store: str,
    artifact_limit: str,
    artifact_days: float,
    allow_net: tuple[str, ...],
    rate_limit: float,
    schedule_quota: int,
    apprise: bool,
    level: str,
    parent: int | None,
) -> None:
    """Start a server against a PostgreSQL database."""
    if parent is not None:
        die_with_parent(parent)
    logs.configure(level)
    for sentence in unknown_settings(os.environ):
        log.warning(sentence)
    if (files := raise_file_limit()) < FEW_FILES:
        log.warning(
            "few open files are allowed: each worker needs two", files=files, hint="raise the hard limit (ulimit -Hn)"
        )
    config = ServeConfig(
        database_url=database_url,
        roles=parse_roles(roles),
        host=host,
        port=port,
        session_lease_s=session_lease,
        shard_lease_s=shard_lease,
        keep_dead_letters_s=keep_dead_letters,
        keep_runs_s=keep_runs,
        keep_history_s=keep_history,
        keep_output_s=keep_output,
        artifact_store=artifact_store,
        artifact_bytes=_size(artifact_limit),
        artifact_kept_s=artifact_days * 86_400,
        allow_net=allow_net,
        apprise=apprise,
        rate_limit=rate_limit,
        schedule_quota=schedule_quota,
    )
    run(serve_until_stopped(config, greet=parent is None))


def _size(text: str) -> int:
    try:
        return parse_amount("disk", text)
    except ValueError as error:
        raise Invalid(f"--artifact-limit: {error}") from None
