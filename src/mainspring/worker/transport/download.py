"""Downloads the files of earlier executions that a job names in `artifacts_in`."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from time import monotonic
from uuid import UUID

import structlog

from mainspring.domain.artifact import ArtifactIn
from mainspring.domain.template import render
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.executors import Done, Work, missing_parameter
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded
from mainspring.worker.transport.upload import GIVE_UP_S, RETRY_S, artifact_query

log = structlog.get_logger()


class InputDownloads:
    """Downloads each attempt's inputs into a folder of its own, below one temporary folder per worker."""

    def __init__(self, api: ApiClient, cleanup: CleanupRegistry) -> None:
        self._api = api
        self._cleanup = cleanup
        self._root: Path | None = None  # created for the first attempt with inputs

    async def fetch(self, work: Work) -> Done | None:
        """Set `work.inputs` to a folder with all input files, or return how the attempt ends without them."""
        folder = self._new_folder(work)
        problem = await self._fetch_all(folder, work)
        if problem is None:
            work.inputs = folder
            return None
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if work.stop_outcome is not None:
            return work.stopped(work.stop_outcome)
        return problem

    async def remove(self) -> None:
        if self._root is not None:
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    def _new_folder(self, work: Work) -> Path:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="mainspring-"))
            self._cleanup.add_folder(str(self._root))
        folder = self._root / f"{work.assignment.execution_id}.{work.assignment.attempt}"
        folder.mkdir()
        return folder

    async def _fetch_all(self, folder: Path, work: Work) -> Done | None:
        for wanted in work.definition.artifacts_in or ():
            try:
                await self._fetch_one(wanted, folder / wanted.put_as, work)
            except KeyError as error:
                return missing_parameter(error)
            except (Refused, SessionEnded, OSError, ValueError) as error:
                return Done("failed", error=f"cannot fetch the artifact {wanted.name!r} of {wanted.source}: {error}")
        return None

    async def _fetch_one(self, wanted: ArtifactIn, path: Path, work: Work) -> None:
        query = artifact_query(work, wanted.name)
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
                    await self._api.download(query, work.assignment.credential, file)
                return
            except ApiUnavailable as error:
                if monotonic() - began > GIVE_UP_S:
                    raise Refused(str(error)) from error
                log.warning("input.download_failed", name=wanted.name, error=str(error), retry_s=RETRY_S)
            await asyncio.sleep(RETRY_S)
        raise Refused("the attempt had to end")
