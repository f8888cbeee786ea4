"""`mainspring serve`: the one place where the stages are wired together."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from mainspring.alerts.deliver import Deliverer
from mainspring.alerts.evaluate import AlertEvaluator
from mainspring.alerts.follow import ExecutionFollower
from mainspring.alerts.measure import ProcessMeasurements
from mainspring.alerts.relay import EventRelay
from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.auth import Authenticator, issue_token
from mainspring.api.connection import ConnectionLimits
from mainspring.api.rate_limit import RequestLimits
from mainspring.api.service import HttpServer
from mainspring.api.status import add_database_check, build_status
from mainspring.api.tls import tls_files
from mainspring.backends.archive_places import open_archive_place
from mainspring.backends.engines import name_prefix, open_bus, open_coordinator, open_delays, open_fire_lock, open_rates
from mainspring.backends.kafka_engines import open_events, open_queue, open_results, open_topics
from mainspring.backends.watched_places import WatchedPlaces
from mainspring.cli.output import echo
from mainspring.cli.server_settings import server_settings
from mainspring.config import ServeConfig, unknown_settings
from mainspring.dispatch.queue_feed import QueueFeed
from mainspring.domain.address import read_networks
from mainspring.domain.topic import read_clusters, read_rules
from mainspring.domain.watch import read_roots
from mainspring.duties.doctor import DoctorRounds
from mainspring.duties.file_watch import FileWatch
from mainspring.duties.retention import Retention
from mainspring.duties.rollups import Rollups
from mainspring.duties.service import Duties
from mainspring.duties.topic_triggers import TopicTriggers
from mainspring.health.readiness import Readiness
from mainspring.health.server import HealthServer
from mainspring.intake.master_keys import encrypt
from mainspring.ports import RateLimit
from mainspring.process import (
    die_with_parent,
    finished_before,
    hide_memory,
    open_file_limit,
    raise_file_limit,
    run,
    stop_signal,
)
from mainspring.results.output_quota import OutputQuotas
from mainspring.results.rescue import Rescue
from mainspring.results.settle import Settler
from mainspring.results.stream import ResultIntake
from mainspring.scheduler.service import Scheduler
from mainspring.service import Loops, Service
from mainspring.store import tokens
from mainspring.store.bus import PostgresBus
from mainspring.store.database_check import check_sessions
from mainspring.store.database_roles import check_roles
from mainspring.store.db import AWAY, Database
from mainspring.store.definitions import Definitions
from mainspring.store.migrate import migrate, prepare_pooled_role
from mainspring.store.subscriptions import Subscriptions
from mainspring.store.warmup import warm_up
from mainspring.telemetry import logs
from mainspring.telemetry.spans import open_spans
from mainspring.vault.keyring import open_keyring
from mainspring.vault.providers.configuration import read_providers
from mainspring.vault.vault import Vault

if TYPE_CHECKING:
    from mainspring.api.context import Context
    from mainspring.dispatch.service import Dispatcher

log = structlog.get_logger()

DEFAULT_TENANT = 1
MIN_OPEN_FILES = 4096


class Server:
    """One server process: the services of its roles, started in order and stopped in reverse."""

    def __init__(self, config: ServeConfig, *, vault: Vault | None = None) -> None:
        self.config = config
        self.database = Database(
            config.database_url, tenant_dsn=config.tenant_database_url, direct_dsn=config.direct_database_url
        )
        prefix = name_prefix(config.database_url)
        self.bus = open_bus(config.bus, PostgresBus(self.database), prefix=prefix)
        self._coordinator = open_coordinator(config.coordinator, prefix=prefix)
        self._archive_place = None if config.archive_url is None else open_archive_place(config.archive_url)
        self.announcer = Announcer(self.bus)
        self._definitions = Definitions(self.database)
        self._subscriptions = Subscriptions(self.database, self.bus)
        self.readiness = Readiness()
        add_database_check(self.readiness, self.database)
        rates = open_rates(config.rate_limiter, prefix=prefix) if "api" in config.roles else None
        self._auth = authenticator(config, self.database, rates)
        self.vault = vault or open_vault(config)
        self._sender = Sender(read_networks(config.allow_net), apprise=config.apprise, public_url=config.public_url)
        self._spans = open_spans(config.otlp_endpoint, role="-".join(config.roles))
        self._queue = open_queue(config.queue, prefix=prefix)
        dispatcher = self._dispatcher() if "api" in config.roles else None
        output = OutputQuotas(self.database, self.bus) if dispatcher is not None else None
        self.settler = Settler(
            self.database,
            self._definitions,
            self.announcer,
            subscriptions=self._subscriptions,
            handoff=None if dispatcher is None else dispatcher.handoff,
            output=output,
            spans=self._spans,
        )
        stream = open_results(config.results, prefix=prefix)
        self._events = open_events(config.events, prefix=prefix) if "scheduler" in config.roles else None
        self._results = ResultIntake(self.database, self.settler, stream)
        self.scheduler: Scheduler | None = None
        self.http: HttpServer | None = None
        self.context: Context | None = None
        measurements = ProcessMeasurements(self.database, roles=config.roles)
        self.health: HealthServer | None = None
        if config.health_port is not None:
            self.health = HealthServer(self.readiness, host=config.health_host, port=config.health_port)
        self._services: list[Service] = [] if rates is None else [rates]
        self._services += [self.bus, self.announcer, self._subscriptions, measurements]
        self._services += [] if output is None else [output]
        self._services += [self._results] if stream is None else [self._results, stream]
        self._services += [] if self._queue is None else [self._queue]
        if "scheduler" in config.roles:
            self._services += self._scheduler_services()
        if dispatcher is not None:
            self._services += self._api_services(dispatcher)
        elif config.port is not None:
            self._services += self._status_services(config.port)

    def _scheduler_services(self) -> list[Service]:
        """The scheduler role: fires, rescue and retention, leader duties, alert rules, notifications."""
        config, coordinator = self.config, self._coordinator
        prefix = name_prefix(config.database_url)
        delays = open_delays(config.delays, prefix=prefix)
        fire_lock = open_fire_lock(config.fire_lock, prefix=prefix)
        scheduler = Scheduler(
            self.database,
            self.bus,
            lease_s=config.shard_lease_s,
            coordinator=coordinator,
            delays=delays,
            fire_lock=fire_lock,
        )
        self.scheduler = scheduler
        self.readiness.add("wheel", scheduler.not_ready)
        rescue = Rescue(self.database, self.settler, leads=scheduler.leads)
        retention = Retention(
            self.database,
            leads=scheduler.leads,
            keep_dead_letters_s=config.keep_dead_letters_s,
            keep_runs_s=config.keep_runs_s,
            keep_history_s=config.keep_history_s,
            keep_output_s=config.keep_output_s,
            archives=self._archive_place is not None,
        )
        files = FileWatch(self.database, WatchedPlaces(), read_roots(config.watch_roots))
        doctor = DoctorRounds(self.database)
        duties = Duties(
            self.database,
            self.bus,
            leads=scheduler.leads,
            announcer=self.announcer,
            files=files,
            vault=self.vault,
            doctor=doctor,
            price_windows=config.price_windows,
        )
        evaluator = AlertEvaluator(
            self.database, self.bus, self._subscriptions, leads=scheduler.leads, doctor=doctor.readings
        )
        deliverer = Deliverer(self.database, self.vault, self.bus, self._sender, leads=scheduler.leads)
        follower = ExecutionFollower(self.database, self.bus, leads=scheduler.leads)
        engines: list[Service] = [engine for engine in (coordinator, delays, fire_lock) if engine is not None]
        rollups = Rollups(self.database, leads=scheduler.leads)
        archive = self._archive_duty(scheduler)
        kafka = [*self._event_relay(scheduler), *self._topic_triggers()]
        if self._queue is not None:
            kafka.append(QueueFeed(self.database, self.bus, self._queue, leads=scheduler.leads))
        messages = [evaluator, deliverer, follower]
        return [*engines, scheduler, rescue, retention, rollups, *archive, duties, *messages, *kafka]

    def _topic_triggers(self) -> list[Service]:
        config = self.config
        topics = open_topics(read_clusters(config.kafka_triggers), prefix=name_prefix(config.database_url))
        if topics is None:
            return []
        return [topics, TopicTriggers(self.database, self.bus, topics, read_rules(config.trigger_topics))]

    def _event_relay(self, scheduler: Scheduler) -> list[Service]:
        if self._events is None:
            return []
        leads, most, types = scheduler.leads, self.config.events_waiting, self.config.event_types
        return [self._events, EventRelay(self.database, self.bus, self._events, leads=leads, most=most, types=types)]

    def _archive_duty(self, scheduler: Scheduler) -> list[Service]:
        if self._archive_place is None:
            return []
        from mainspring.duties.archive import ArchiveDuty  # a process without an archive does not load pyarrow

        config = self.config
        return [
            ArchiveDuty(
                config.database_url,
                self._archive_place,
                leads=scheduler.leads,
                after_s=config.archive_after_s,
                keep_s=config.keep_archive_s,
            )
        ]

    def _dispatcher(self) -> Dispatcher:
        from mainspring.dispatch.service import Dispatcher  # a process without the API does not load it

        return Dispatcher(self.database, self.bus, self._definitions, self.announcer, queue=self._queue)

    def _api_services(self, dispatcher: Dispatcher) -> list[Service]:
        """The api role: the HTTP server with the API and the web UI, dispatch, live streams, artifacts."""
        if self._archive_place is not None:
            from mainspring.archive.read import ArchiveReader

            self.database.archive = ArchiveReader(self._archive_place)
        from mainspring.cli.api_process import ApiProcess  # a process without the API does not load it

        process = ApiProcess(
            self.config,
            self.database,
            self.bus,
            auth=self._auth,
            definitions=self._definitions,
            dispatcher=dispatcher,
            settler=self.settler,
            results=self._results,
            announcer=self.announcer,
            sender=self._sender,
            limits=connection_limits(self.config),
            readiness=self.readiness,
            vault=self.vault,
            spans=self._spans,
        )
        self.context, self.http = process.context, process.http
        return process.services

    def _status_services(self, port: int) -> list[Service]:
        """Without the api role: only health and metrics, if a port is given."""
        app = build_status(self.database, self._auth, self.readiness)
        tls = tls_files(self.config.tls_cert, self.config.tls_key, None)
        self.http = HttpServer(app, host=self.config.host, port=port, limits=connection_limits(self.config), tls=tls)
        return [self.http]

    async def start(self) -> None:
        await self.readiness.start()
        if self.health is not None:
            await self.health.start()
        await check_sessions(self.database, tenant_dsn=self.config.tenant_database_url)
        await self.database.open()
        await check_roles(self.database)
        await self._encrypt_secrets()
        await self._auth.open()
        for service in self._services:
            await service.start()
        for service in self._services:
            await service.ready()
        self.readiness.starting = False

    async def _encrypt_secrets(self) -> None:
        """Encrypt what servers without a master key have left in plain text."""
        if self.vault.has_key and (count := await encrypt(self.database, self.vault)):
            log.info("secrets.encrypted", rows=count)

    async def stop(self) -> None:
        """End streams and long polls first, then requests, then the loops, which hand over their shards."""
        self.readiness.stopping = True
        for service in reversed(self._services):
            try:
                await service.drain()
                await service.stop()
            except Exception:
                log.exception("service.stop_failed", service=type(service).__name__)
        await self._auth.close()
        await self._sender.close()
        await self.vault.close()
        await self.database.close()
        if self.health is not None:
            await self.health.stop()
        await self.readiness.stop()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)


def authenticator(config: ServeConfig, database: Database, rates: RateLimit | None = None) -> Authenticator:
    """Tokens and browser sessions; with issuers also their JWTs."""
    limits = RequestLimits(config.rate_limit, shared=rates)
    if not config.issuers:
        return Authenticator(database, limits=limits, schedule_quota=config.schedule_quota)
    from mainspring.api.federated import FederatedAuthenticator  # a process without issuers does not load it
    from mainspring.oidc.provider import open_providers

    return FederatedAuthenticator(
        database,
        open_providers(config.issuers, allowed=read_networks(config.allow_net), public_url=config.public_url),
        public_url=config.public_url,
        limits=limits,
        schedule_quota=config.schedule_quota,
    )


def open_vault(config: ServeConfig) -> Vault:
    """The vault of a process, with the master keys and providers that its configuration or environment names."""
    text = os.environ.get("MAINSPRING_SECRET_KEY")
    keyring = open_keyring(file=config.secret_key_file, text=text, descriptor=config.secret_key_fd)
    return Vault(keyring, read_providers(Path(config.secret_providers)) if config.secret_providers else None)


def connection_limits(config: ServeConfig) -> ConnectionLimits:
    default = ConnectionLimits()
    limits = ConnectionLimits(
        strangers=max(default.strangers, config.connections_per_address),
        strangers_per_address=config.connections_per_address,
        trusted_proxies=read_networks(config.trusted_proxies),
    )
    return limits.for_files(open_file_limit())


async def wait_for_database(config: ServeConfig) -> None:
    """Migrate the database, retrying until it is reachable; prepare the role of connections through PgBouncer."""
    wait = 0.2
    while True:
        try:
            for migration in await migrate(config.direct_database_url or config.database_url):
                log.info("schema.migrated", number=migration.number, name=migration.name)
            if config.direct_database_url is not None:
                await prepare_pooled_role(config.direct_database_url, config.database_url)
            return
        except AWAY as error:
            log.warning("database.unreachable", error=str(error) or type(error).__name__, retry_in_s=wait)
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)


async def first_token(database: Database) -> str | None:
    """Issue the admin token of a new installation; None if a token exists."""
    async with database.transaction() as connection:
        if await tokens.has_tokens(connection):
            return None
        return await issue_token(connection, tenant=DEFAULT_TENANT, name="bootstrap", scopes=("admin", "worker"))


async def serve_until_stopped(config: ServeConfig, *, greet: bool) -> None:
    stop, warmup = stop_signal(), Loops("serve")
    if not await finished_before(stop, wait_for_database(config)):
        return
    server = Server(config)
    async with Database(config.direct_database_url or config.database_url, size=1) as database:
        token = await first_token(database)
    if token is not None:
        echo(f"Admin token of this new installation. It is not shown again:\n\n  {token}\n")
    try:
        await server.start()
        if server.http is not None and greet:
            serves = "API and web UI" if "api" in config.roles else "/healthz, /readyz and /metrics"
            echo(
                f"{serves} at {'http' if config.tls_cert is None else 'https'}://{config.host}:{server.http.port}",
                err=True,
            )
        if "api" in config.roles:
            warmup.spawn(warm_up(server.database), "warmup")
        await stop.wait()
    finally:
        await warmup.stop()
        await server.stop()


@click.command()
@server_settings
@click.option("--parent", type=int, hidden=True, help="End when this process does.")
def serve(level: str, parent: int | None, **settings: Any) -> None:
    """Start a server against a PostgreSQL database.

    By default one process has all roles. To scale out, start several processes with the role api and several with
    the role scheduler against the same database.
    """
    if parent is not None:
        die_with_parent(parent)
    hide_memory()  # the database's password is in its environment
    logs.configure(level)
    for warning in unknown_settings(os.environ):
        log.warning(warning)
    if (files := raise_file_limit()) < MIN_OPEN_FILES:
        log.warning("open file limit is low", files=files, hint="raise it (ulimit -Hn): each worker needs two")
    run(serve_until_stopped(ServeConfig(**settings), greet=parent is None))
