"""The services that routes use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.auth import Authenticator
from mainspring.api.live import LiveUpdates
from mainspring.api.rate_limit import RequestLimits
from mainspring.api.read_cache import ReadCache
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.intake.artifacts import Artifacts
from mainspring.intake.executions import Submitter
from mainspring.intake.quota import Quotas
from mainspring.intake.runs import RunTransactions
from mainspring.results.settle import Settler
from mainspring.store.db import Database
from mainspring.views.runs import RunViews

CONCURRENT_REGISTRATIONS = 3
"""Registrations at a time, so that a fleet that reconnects leaves database connections for its heartbeats."""


@dataclass(frozen=True, slots=True)
class Context:
    database: Database
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
    rates: RequestLimits
    quotas: Quotas
    reads: ReadCache
    session_lease_s: float = 20.0
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_REGISTRATIONS))
