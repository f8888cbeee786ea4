"""The services that routes use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.auth import Authenticator
from mainspring.api.keyed_turns import KeyedTurns
from mainspring.api.live import LiveUpdates
from mainspring.api.open_streams import OpenStreams
from mainspring.api.rate_limit import RequestLimits
from mainspring.api.read_cache import ReadCache
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.domain.costs import ALWAYS, NO_PRICES, Prices, PriceWindows
from mainspring.health.readiness import Readiness
from mainspring.intake.artifacts import Artifacts
from mainspring.intake.audit_bursts import AuditBursts
from mainspring.intake.executions import Submitter
from mainspring.intake.runs import RunTransactions
from mainspring.results.settle import Settler
from mainspring.results.stream import ResultIntake
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.replica import Replica
from mainspring.telemetry.spans import Spans
from mainspring.vault.vault import Vault
from mainspring.views.runs import RunViews

CONCURRENT_REGISTRATIONS = 3
"""Registrations at a time, so that a fleet that reconnects leaves database connections for its heartbeats."""
MAX_CACHED_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class Context:
    """What routes work with. `database` is that of the caller's tenant in a request; see `of`."""

    database: Database
    definitions: Definitions
    auth: Authenticator
    live: LiveUpdates
    submitter: Submitter
    dispatcher: Dispatcher
    heartbeats: Heartbeats
    settler: Settler
    results: ResultIntake
    announcer: Announcer
    artifacts: Artifacts
    run_views: RunViews
    runs: RunTransactions
    sender: Sender
    readiness: Readiness
    rates: RequestLimits
    reads: ReadCache
    streams: OpenStreams
    bursts: AuditBursts
    vault: Vault = field(default_factory=Vault)
    prices: Prices = NO_PRICES
    trace_url: str = ""  # with {trace_id}; empty: pages link to no traces
    price_windows: PriceWindows = ALWAYS
    needs_client_certificate: bool = False  # of workers
    session_lease_s: float = 20.0
    spans: Spans | None = None  # of submissions
    replica: Replica | None = None  # answers some reads of `api/replica_reads.py`
    keyed: KeyedTurns = field(default_factory=KeyedTurns)
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_REGISTRATIONS))
    _of: dict[int, Context] = field(default_factory=dict)

    def of(self, tenant: int) -> Context:
        """Return the context of a tenant's requests: its `database`, `runs` and `run_views` reach rows of that
        tenant only.

        The other services work for all tenants, and so does `database.root`.
        """
        if (found := self._of.get(tenant)) is None:
            database = self.database.of(tenant)
            if database is self.database:
                return self
            if len(self._of) >= MAX_CACHED_TENANTS:
                self.forget_tenants()
            views = self.run_views.of(database)
            runs = RunTransactions(database, views, self.announcer)
            found = self._of[tenant] = replace(self, database=database, run_views=views, runs=runs)
        return found

    def on_replica(self, replica: Replica, tenant: int) -> Context:
        """Return the context of a tenant's read that the replica answers."""
        database = replica.of(tenant)
        return replace(self.of(tenant), database=database, run_views=self.run_views.of(database))

    def forget_tenants(self) -> None:
        """Discard the contexts that `of` has cached."""
        self._of.clear()
