"""Calls functions in the test's own process, so that patches, breakpoints and coverage work."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from mainspring import runner_protocol as protocol
from mainspring.domain.task import PythonTask
from mainspring.domain.template import fill
from mainspring.runner.answers import failure, returned_value, stored_value
from mainspring.runner.functions import Functions, NotCallable
from mainspring.sdk.context import current
from mainspring.sdk.transaction import AlreadyDone
from mainspring.worker.executors import Done, Work, missing_parameter

Call = Callable[[], protocol.Returned]
CallSync = Callable[[Call], Awaitable[protocol.Returned]]
"""Calls a function that is not asynchronous, in a thread where it may block."""


class CallInTest:
    """The call that is running, as `mainspring.sdk` sees it. Implements `CurrentCall`."""

    committed = False

    def __init__(self, work: Work, last_checkpoint: Any, folder: Path) -> None:
        self.execution_id = str(work.assignment.execution_id)
        self.job = work.definition.name
        self.attempt = work.assignment.attempt
        self.fire_at = work.fire_at
        self.last_checkpoint = last_checkpoint
        self.inputs: str | None = None if work.inputs is None else str(work.inputs)
        self.checkpoint: Any = last_checkpoint
        self.progress: list[tuple[float, float | None, str | None]] = []
        self._work, self._folder = work, folder

    def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append((done, total, message))

    def write(self, stream: Literal["stdout", "stderr"], text: str, *, flush: bool) -> None:
        self._work.output.write(stream, text.encode())

    def flush(self) -> None:
        return

    def save_checkpoint(self, value: bytes) -> None:
        self.checkpoint = msgspec.json.decode(value)

    def artifact_folder(self) -> str:
        folder = self._folder / self.execution_id
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)


class FunctionsInTest:
    """Executor of the kind `python`. Checkpoints and artifacts of an execution are kept for its next attempt."""

    def __init__(self, call_sync: CallSync) -> None:
        self._call_sync = call_sync
        self._modules: dict[str, ModuleType] = {}
        self._functions = Functions(())
        self._folder = tempfile.TemporaryDirectory(prefix="mainspring-test-artifacts-")
        self._checkpoints: dict[str, Any] = {}

    @property
    def artifacts(self) -> Path:
        return Path(self._folder.name)

    def add(self, module: ModuleType) -> None:
        self._modules[module.__name__] = module
        self._functions = Functions(list(self._modules.values()))

    def close(self) -> None:
        self._folder.cleanup()

    async def execute(self, work: Work) -> Done:
        task = work.definition.task
        assert isinstance(task, PythonTask)
        try:
            args = (fill(task.args, work.values()) if task.args else {}) | work.params
            function = self._functions.find(task.function)
            args = function.arguments(args)
        except KeyError as error:
            return missing_parameter(error)
        except NotCallable as error:
            return Done("failed", error=str(error), retry=error.retry)
        call = CallInTest(work, self._checkpoints.get(str(work.assignment.execution_id)), self.artifacts)
        once = work.definition.delivery == "effectively_once"
        if function.is_async:
            answer = await _call_async(call, lambda: function.call(**args), once=once)
        else:
            answer = await self._call_sync(lambda: _call(call, lambda: function.call(**args), once=once))
        self._checkpoints[call.execution_id] = call.checkpoint
        if answer.error is not None:
            return Done("failed", error=answer.error, retry=answer.retry)
        return Done("succeeded", result=None if answer.result == b"null" else answer.result)


def _call(call: CallInTest, function: Callable[[], Any], *, once: bool) -> protocol.Returned:
    token = current.set(call)
    try:
        return returned_value(0, function(), once=once, committed=call.committed)
    except AlreadyDone as done:
        return stored_value(0, done)
    except Exception as error:
        return failure(0, error)
    finally:
        current.reset(token)


async def _call_async(call: CallInTest, function: Callable[[], Any], *, once: bool) -> protocol.Returned:
    token = current.set(call)
    try:
        value = function()
        value = await value if inspect.isawaitable(value) else value
        return returned_value(0, value, once=once, committed=call.committed)
    except AlreadyDone as done:
        return stored_value(0, done)
    except Exception as error:
        return failure(0, error)
    finally:
        current.reset(token)
