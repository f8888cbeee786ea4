"""A bench for alerts: channels, a settler that writes the outbox, and delivery by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.alerts import channels, silences
from mainspring.alerts.deliver import deliver
from mainspring.alerts.evaluate import AlertEvaluator
from mainspring.alerts.send import Sender
from mainspring.announce import Announcer
from mainspring.domain.address import read_networks
from mainspring.domain.channel import PagerDutyTarget, SlackTarget, Target, WebhookTarget
from mainspring.domain.retry import RetryPolicy
from mainspring.results.settle import Settler
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.subscriptions import Subscriptions
from tests.support.http_receiver import Received, Receiver
from tests.support.secret_keys import shared_vault
from tests.support.settling import SettlingBench
from tests.support.silent_bus import SilentBus

TENANT = 1
LOOPBACK = read_networks(["127.0.0.0/8"])


class AlertBench(SettlingBench):
    """A bench whose settler notifies subscribed channels."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.subscriptions = Subscriptions(database, SilentBus())
        self.settler = Settler(
            database,
            Definitions(database),
            Announcer(SilentBus()),
            rng=random.Random(1),
            subscriptions=self.subscriptions,
        )
        self.vault = shared_vault()
        self.sender = Sender(LOOPBACK)
        self.evaluator = AlertEvaluator(database, SilentBus(), self.subscriptions, leads=lambda: True)

    async def channel(
        self, name: str, target: Target, events: Sequence[str] = (), jobs: Sequence[str] = ()
    ) -> wire.Channel:
        request = wire.NewChannel(name=name, target=target, events=list(events), jobs=list(jobs))
        made = await channels.create(self.database, self.vault, request, tenant=TENANT, by="test")
        await self.subscriptions.read()
        return made

    async def webhook(self, server: Receiver, *events: str, name: str = "hook") -> str:
        """Create a webhook channel; return its secret."""
        made = await self.channel(name, WebhookTarget(server.url("/hook")), events)
        assert made.secret is not None
        return made.secret

    async def slack(self, server: Receiver, *events: str, name: str = "slack") -> None:
        await self.channel(name, SlackTarget(server.url("/services/T0/B0/x")), events)

    async def pagerduty(self, server: Receiver, *events: str, name: str = "pager") -> None:
        await self.channel(name, PagerDutyTarget("r0ut1ng", server.url("/v2/enqueue")), events)

    async def silence(self, matchers: dict[str, str], **more: Any) -> wire.Silence:
        made = await silences.create(
            self.database, wire.NewSilence(matchers=matchers, **more), tenant=TENANT, by="test"
        )
        self.evaluator.edited()
        return made

    async def job(self, **spec: Any) -> UUID:
        job_id = await super().job(**spec)
        await self.subscriptions.read()
        return job_id

    async def deliver(self) -> int:
        """Deliver everything that is due; return the number of tries."""
        tried = 0
        while sent := (await deliver(self.database, self.vault, self.sender)).messages:
            tried += len(sent)
        return tried

    async def deliveries(self, **more: Any) -> list[wire.Delivery]:
        """Return deliveries, oldest first."""
        page = await channels.deliveries(self.database, tenant=TENANT, limit=500, **more)
        return page.items[::-1]

    async def ended(self, outcome: Any = "succeeded", job: UUID | None = None, **more: Any) -> UUID:
        """Run an execution to this outcome; return its id."""
        execution = await self.submit(job or await self.job(retries=RetryPolicy(max=0)))
        session = await self.session()
        (row,) = await self.claim(session)
        assert row["execution_id"] == execution
        assert await self.end(execution, session, outcome, **more)
        return execution


def body_of(received: Received) -> Any:
    return json.loads(received.body)
