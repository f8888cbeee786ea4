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
from mainspring.service import Service
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
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
        announcer: Announcer,
        sender: Sender,
        limits: ConnectionLimits,
        readiness: Readiness,
        vault: Vault,
    ) -> None:
        store = open_store(config.artifact_store)
        artifacts = Artifacts(database, store, most_bytes=config.artifact_bytes, kept_s=config.artifact_kept_s)
        run_views = RunViews(database)
        reads = ReadCache(bus)
        announcer.listen(reads.observed)
        announcer.add_watch(lambda: reads.in_use)
        self.context = Context(
            database=database,
            definitions=definitions,
            auth=auth,
            live=LiveUpdates(database, bus, announcer),
            submitter=Submitter(database, definitions, dispatcher.handoff),
            dispatcher=dispatcher,
            heartbeats=Heartbeats(database, lease_s=config.session_lease_s),
            settler=settler,
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
            needs_client_certificate=config.tls_client_ca is not None,
            session_lease_s=config.session_lease_s,
        )
        tls = tls_files(config.tls_cert, config.tls_key, config.tls_client_ca)
        app = ApiRouter(build(self.context, pages=pages, error_page=not_found_page), endpoints(), self.context)
        port = PORT if config.port is None else config.port
        self.http = HttpServer(app, host=config.host, port=port, limits=limits, tls=tls)
        self.services: list[Service] = [
            self.context.bursts,
            self.http,
            dispatcher,
            self.context.live,
            artifacts,
            self.context.streams,
        ]
