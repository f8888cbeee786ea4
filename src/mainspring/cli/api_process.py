"""The api role of a server process: the HTTP API and the web UI, wired to the stages behind them."""

from __future__ import annotations

from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.app import build, endpoints
from mainspring.api.auth import Authenticator
from mainspring.api.connection import ConnectionLimits
from mainspring.api.context import Context
from mainspring.api.live import LiveUpdates
from mainspring.api.open_streams import OpenStreams
from mainspring.api.read_cache import ReadCache
from mainspring.api.router import ApiRouter
from mainspring.api.service import HttpServer
from mainspring.api.tls import tls_files
from mainspring.backends.engines import name_prefix, open_cache
from mainspring.backends.stores import open_store
from mainspring.config import PORT, ServeConfig
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.health.readiness import Readiness
from mainspring.intake.artifacts import Artifacts
from mainspring.intake.audit_bursts import AuditBursts
from mainspring.intake.executions import Submitter
from mainspring.intake.runs import RunTransactions
from mainspring.ports import Bus
from mainspring.results.settle import Settler
from mainspring.results.stream import ResultIntake
from mainspring.service import Service
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.replica import Replica
from mainspring.telemetry.spans import Spans
from mainspring.vault.vault import Vault
from mainspring.views.runs import RunViews
from mainspring.web.app import routes as pages
from mainspring.web.endpoint import not_found_page


class ApiProcess:
    """The services of the api role. Imported only by processes that have it."""

    def __init__(
        self,
        config: ServeConfig,
        database: Database,
        bus: Bus,
        *,
        auth: Authenticator,
        definitions: Definitions,
        dispatcher: Dispatcher,
        settler: Settler,
        results: ResultIntake,
        announcer: Announcer,
        sender: Sender,
        limits: ConnectionLimits,
        readiness: Readiness,
        vault: Vault,
        spans: Spans | None = None,
    ) -> None:
        store = open_store(config.artifact_store)
        artifacts = Artifacts(database, store, most_bytes=config.artifact_bytes, kept_s=config.artifact_kept_s)
        run_views = RunViews(database)
        shared = open_cache(config.cache, prefix=name_prefix(config.database_url))
        reads = ReadCache(bus, shared=shared)
        announcer.listen(reads.observed)
        announcer.add_watch(lambda: reads.in_use)
        replica = _replica(config, database)
        self.context = Context(
            database=database,
            definitions=definitions,
            auth=auth,
            live=LiveUpdates(database, bus, announcer),
            submitter=Submitter(database, definitions, dispatcher.handoff),
            dispatcher=dispatcher,
            heartbeats=Heartbeats(database, lease_s=config.session_lease_s),
            settler=settler,
            results=results,
            announcer=announcer,
            artifacts=artifacts,
            run_views=run_views,
            runs=RunTransactions(database, run_views, announcer),
            sender=sender,
            readiness=readiness,
            rates=auth.limits,
            reads=reads,
            streams=OpenStreams(database, bus, auth, per_token=config.streams_per_token),
            bursts=AuditBursts(database),
            vault=vault,
            prices=config.prices,
            trace_url=config.trace_url,
            price_windows=config.price_windows,
            needs_client_certificate=config.tls_client_ca is not None,
            session_lease_s=config.session_lease_s,
            replica=replica,
            spans=spans,
        )
        self.http = _http_server(config, self.context, limits)
        self.services: list[Service] = [
            *([] if shared is None else [shared]),
            self.context.bursts,
            self.http,
            dispatcher,
            self.context.live,
            artifacts,
            self.context.streams,
            *([] if replica is None else [replica]),
        ]


def _replica(config: ServeConfig, database: Database) -> Replica | None:
    if config.replica_url is None:
        return None
    tenants = config.tenant_database_url is not None
    return Replica(config.replica_url, database, max_lag_s=config.replica_max_lag_s, tenants=tenants)


def _http_server(config: ServeConfig, context: Context, limits: ConnectionLimits) -> HttpServer:
    app = ApiRouter(build(context, pages=pages, error_page=not_found_page), endpoints(), context)
    tls = tls_files(config.tls_cert, config.tls_key, config.tls_client_ca)
    port = PORT if config.port is None else config.port
    return HttpServer(app, host=config.host, port=port, limits=limits, tls=tls)
