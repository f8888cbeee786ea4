"""Files of earlier executions that an attempt asked for: they are there before it begins, or it does not begin."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from time import monotonic
from uuid import UUID

import structlog

from mainspring.domain.artifact import ArtifactIn
from mainspring.domain.template import render
from mainspring.worker.executors import Done, Work
from mainspring.worker.transport.api_link import ApiAway, Link, Refused, SessionEnded
from mainspring.worker.transport.upload import GIVE_UP_S, RETRY_S

log = structlog.get_logger()


async def fetch_files(folder: Path, work: Work, link: Link) -> Done | None:
    """Puts the files into a new folder, which becomes the attempt's; how the attempt ends if that can't be."""
    os.mkdir(folder)
    for wanted in work.definition.artifacts_in or ():
        try:
            await _fetch(wanted, folder / wanted.put_as, work, link)
        except KeyError as error:
            trouble = Done("failed", error=f"the parameter {error} was not given", retry=False)
        except (Refused, SessionEnded, OSError, ValueError) as error:
            trouble = Done("failed", error=f"the artifact {wanted.name!r} of {wanted.source} can't be had: {error}")
        else:
            continue
        if work.stop_outcome is not None:
            trouble = Done(work.stop_outcome, error=work.stop_outcome)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return trouble
    work.inputs = folder
    return None


async def _fetch(wanted: ArtifactIn, path: Path, work: Work, link: Link) -> None:
    given = work.assignment
    query = {
        "session_id": str(work.session_id),
        "execution_id": str(given.execution_id),
        "attempt": str(given.attempt),
        "name": wanted.name,
    }
    if wanted.job is not None:
        query["job"] = wanted.job
    elif wanted.execution is not None:
        query["source"] = str(UUID(render(wanted.execution, work.values())))
    else:
        query["step"] = str(wanted.step)
    os.makedirs(path.parent, exist_ok=True)
    began = monotonic()
    while work.stop_outcome is None:
        try:
            with await asyncio.to_thread(path.open, "wb") as file:
                await link.download(query, file)
            return
        except ApiAway as error:
            if monotonic() - began > GIVE_UP_S:
                raise Refused(str(error)) from error
            log.warning("an attempt waits for a file", name=wanted.name, error=str(error))
        await asyncio.sleep(RETRY_S)
    raise Refused("the attempt had to end")
