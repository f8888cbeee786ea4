"""The embedded PostgreSQL server of one directory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from .binaries import Binaries, find_binaries
from .cluster import DATABASE, ROLE, SERVER_ROLE, SETTINGS_FILE, SUPERUSER, TENANT_ROLE, Cluster
from .errors import diagnose, from_os
from .files import replace
from .identity import Identity, choose
from .lock import DirectoryLock
from .orphans import FAST, IMMEDIATE, clear, end_stragglers
from .process import ended, spawn, stop
from .settings import access_rules, render, server_settings
from .sockets import remove_socket_folder, socket_folder

_SOCKET_PORT = 5432  # part of the socket's name; unique, as its folder is private
_MOST_LOG_BYTES = 8 * 1024 * 1024


class EmbeddedServer:
    """The PostgreSQL server of one directory.

    `start` creates the cluster the first time and recovers it after a crash; when `wait_died` returns, call it again.
    The server ends with this process, even if that is killed, and with the thread that called `start`. It listens on
    a Unix socket and requires a password; with `port`, also on TCP at 127.0.0.1.
    """

    def __init__(self, directory: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.directory = Path(directory).resolve()
        self._port = port
        self._overrides = dict(settings or {})
        self._cluster = Cluster(self.directory)
        self._lock: DirectoryLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    @cached_property
    def binaries(self) -> Binaries:
        return find_binaries()

    @property
    def version(self) -> str:
        return self.binaries.version

    @property
    def origin(self) -> str:
        """The origin of the programs: "bundled", "system" or "MAINSPRING_PG_BIN"."""
        return self.binaries.origin

    @property
    def pid(self) -> int | None:
        """The pid of the postmaster while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log(self) -> Path:
        return self.directory / "pg.log"

    @property
    def dsn(self) -> str:
        """The connection string of Mainspring's database for the owner of the schema, once started."""
        return self.dsn_for(DATABASE)

    def dsn_for(self, database: str) -> str:
        """Return the connection string of another database for the same role, which may create databases."""
        return self._dsn(ROLE, database)

    def server_dsn(self, database: str = DATABASE) -> str:
        """Return the connection string of the role of servers, which owns nothing."""
        return self._dsn(SERVER_ROLE, database)

    def tenant_dsn(self, database: str = DATABASE) -> str:
        """Return the connection string of the role that sees one tenant at a time."""
        return self._dsn(TENANT_ROLE, database)

    def superuser_dsn(self, database: str = DATABASE) -> str:
        """Return the connection string of the superuser, for example for CREATE EXTENSION."""
        return self._dsn(SUPERUSER, database)

    async def start(self) -> None:
        """Start the server and return when it accepts connections; do nothing if it already runs."""
        if self.pid is not None:
            return
        try:
            await self._start()
        except BaseException as error:
            await self._halt((signal.SIGQUIT, 5.0))
            if isinstance(error, OSError):
                raise from_os(error, where=str(self.directory)) from error
            raise

    async def stop(self) -> None:
        """Stop the server; open transactions are rolled back."""
        await self._halt(FAST, IMMEDIATE)

    async def wait_died(self) -> int:
        """Return the exit status when the server ends without `stop`; a later `start` recovers.

        After a `stop` it never returns: cancel it.
        """
        process = self._process
        if process is not None:
            code = await ended(process)
            if self._process is process:
                return code
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await never

    async def _start(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._lock or DirectoryLock(self.directory / "lock")
        binaries, cluster = self.binaries, self._cluster
        cluster.check(binaries)
        settings = render(server_settings(binaries, self._overrides))
        identity = await choose(binaries.bin_dir / "postgres", self.directory, cluster.data)
        identity.own(self.directory / "lock")
        await clear(cluster.data)
        await cluster.remove_unfinished()
        if not cluster.exists():
            await cluster.create(binaries, identity, settings)
        replace(cluster.data / SETTINGS_FILE, settings)
        replace(cluster.data / "pg_hba.conf", access_rules(self._port))
        cluster.data.chmod(0o700)  # PostgreSQL requires this mode, and a copy may have lost it
        identity.own(cluster.data, *cluster.password_files.values())
        await cluster.restore_passwords(binaries, identity)
        self._sockets = socket_folder(self.directory, identity)
        await self._launch(identity)

    async def _launch(self, identity: Identity) -> None:
        listen = {
            "listen_addresses": "127.0.0.1" if self._port is not None else "",
            "port": str(self._port or _SOCKET_PORT),
            "unix_socket_directories": str(self._sockets),
            "unix_socket_permissions": "0700",
        }
        options = [word for name, value in listen.items() for word in ("-c", f"{name}={value}")]
        postgres = self.binaries.bin_dir / "postgres"
        if self.log.exists() and self.log.stat().st_size > _MOST_LOG_BYTES:
            self.log.rename(self.log.with_name("pg.log.1"))
        with os.fdopen(os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            identity.own(self.log)
            before = os.fstat(log.fileno()).st_size
            self._process = spawn(
                [postgres, "-D", self._cluster.data, *options],
                identity=str(identity),
                folder=self.directory,
                stdin=None,
                output=log,
            )
        await self._ready(self._process, before)

    async def _ready(self, process: subprocess.Popen[bytes], log_start: int) -> None:
        """Wait for `ready` in the pid file. Recovery may take long, so only the end of the process is a failure."""
        while not self._says_ready(process.pid):
            if process.poll() is not None:
                with self.log.open("rb") as log:
                    log.seek(log_start)
                    output = log.read().decode(errors="replace")
                raise diagnose("PostgreSQL did not start", output, where=str(self.directory))
            await asyncio.sleep(0.01)

    def _says_ready(self, pid: int) -> bool:
        try:
            lines = (self._cluster.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # The eighth line is the status; the pid in the first distinguishes this server's file from a stale one.
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    async def _halt(self, *signals: tuple[signal.Signals, float]) -> None:
        process, self._process = self._process, None
        try:
            if process is not None and process.poll() is None:
                # SIGKILL only if PostgreSQL does not react, as the next start must then recover.
                await stop(process.pid, *signals, (signal.SIGKILL, 5.0))
                process.wait()
            if process is not None:
                await end_stragglers(self._cluster.data)
                remove_socket_folder(self.directory)
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _dsn(self, role: str, database: str) -> str:
        if self._sockets is None:
            raise RuntimeError("the server has not been started")
        password = self._cluster.password(role)
        address = f"host={quote(str(self._sockets))}&port={self._port or _SOCKET_PORT}"
        return f"postgresql://{role}:{password}@/{quote(database, safe='')}?{address}"
