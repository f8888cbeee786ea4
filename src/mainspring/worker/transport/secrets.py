"""Fetches the secrets of an attempt before it starts."""

from __future__ import annotations

import asyncio

import structlog

from mainspring import wire
from mainspring.domain.masking import Mask
from mainspring.worker.executors import Done, Work
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded

log = structlog.get_logger()

RETRY_S = 0.5


async def fetch_secrets(api: ApiClient, work: Work) -> Done | None:
    """Set the secrets of an attempt and their mask; return why it cannot start, or None."""
    given = work.assignment
    body = wire.FetchSecrets(
        session_id=work.session_id,
        execution_id=given.execution_id,
        attempt=given.attempt,
        credential=given.credential,
    )
    while work.stop_outcome is None:
        try:
            found = await api.fetch_secrets(body)
        except ApiUnavailable as error:
            log.warning("secrets.fetch_failed", execution=str(given.execution_id), error=str(error), retry_s=RETRY_S)
            await asyncio.sleep(RETRY_S)
            continue
        except (SessionEnded, Refused) as error:
            return Done("failed", error=f"the api did not give the secrets of this attempt: {error}")
        if found.problem is not None:
            return Done("failed", error=found.problem, retry=found.retry)
        work.secrets, work.mask = found.values, Mask(found.values.values())
        return None
    return work.stopped(work.stop_outcome)
