"""The server and worker processes of `mainspring dev`."""

from __future__ import annotations

import asyncio
import os
import sys

from mainspring.cli.job_user import JobUser
from mainspring.cli.output import echo
from mainspring.domain.errors import MainspringError

STOP_TIMEOUT_S = 15.0


class StartFailed(MainspringError):
    code = "start_failed"


class ChildProcess:
    """A child process of `mainspring dev`, restarted when it dies."""

    def __init__(
        self, name: str, argv: list[str], env: dict[str, str], *, token: str | None = None, user: JobUser | None = None
    ) -> None:
        self.name = name
        self._argv = argv
        self._env = env
        self._token = token  # passed by a pipe: neither the environment nor the command line shows it
        self._user = user
        self._process: asyncio.subprocess.Process | None = None
        self.was_up = False  # before that, its death is a failed start

    async def run_once(self) -> None:
        """Start the process and return when it has died; call again to restart it."""
        argv = [sys.executable, "-m", "mainspring.cli.main", *self._argv, "--parent", str(os.getpid())]
        descriptors: tuple[int, ...] = ()
        if self._token is not None:
            descriptors = (_pipe_with(self._token),)
            argv += ["--token-fd", str(descriptors[0])]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(argv if self._user is None else self._user.command(argv)),
                env=self._env if self._user is None else self._user.environment(self._env),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=descriptors,
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        code = await self._process.wait()
        if not self.was_up:
            raise StartFailed(f"the {self.name} could not start (exit code {code}); see its error above")
        echo(f"  the {self.name} died (exit code {code}); restarting it", err=True)
        await asyncio.sleep(0.2)

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _pipe_with(text: str) -> int:
    """Return the reading end of a pipe that holds a short text."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        pipe.write(text)
    return reading
