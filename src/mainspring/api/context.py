"""The services that routes use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

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
from mainspring.health.readiness import Readiness
from mainspring.intake.artifacts import Artifacts
from mainspring.intake.audit_bursts import AuditBursts
from mainspring.intake.executions import Submitter
from mainspring.intake.runs import RunTransactions
from mainspring.results.settle import Settler
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.vault.vault import Vault
from mainspring.views.runs import RunViews

CONCURRENT_REGISTRATIONS = 3
"""Registrations at a time, so that a fleet that reconnects leaves database connections for its heartbeats."""


@dataclass(frozen=True, slots=True)
class Context:
    database: Database
    definitions: Definitions
    auth: Authenticator
    live: LiveUpdates
    submitter: Submitter
    dispatcher: Dispatcher
    heartbeats: Heartbeats
    settler: Settler
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
    needs_client_certificate: bool = False  # of workers
    session_lease_s: float = 20.0
    keyed: KeyedTurns = field(default_factory=KeyedTurns)
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_REGISTRATIONS))
