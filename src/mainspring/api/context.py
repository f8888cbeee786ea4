"""What every route may use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.api.auth import Authenticator
from mainspring.api.live import Live
from mainspring.api.rates import Rates
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.intake.artifacts import Artifacts
from mainspring.intake.executions import Submitter
from mainspring.intake.quota import Quotas
from mainspring.intake.runs import Runs
from mainspring.results.settle import Settler
from mainspring.store.db import Database

REGISTERING = 3
"""Workers that are registered at a time. A fleet that comes back all at once leaves connections to its heartbeats."""


@dataclass(frozen=True, slots=True)
class Context:
    database: Database
    auth: Authenticator
    live: Live
    submitter: Submitter
    dispatcher: Dispatcher
    heartbeats: Heartbeats
    settler: Settler
    announcer: Announcer
    artifacts: Artifacts
    runs: Runs
    sender: Sender
    rates: Rates
    quotas: Quotas
    session_lease_s: float = 20.0
    registering: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REGISTERING))
