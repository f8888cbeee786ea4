"""A real PgBouncer in front of a PostgreSQL server that listens on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.debian_programs import find_program, library_path
from tests.support.engine_servers import EngineServer

USER = "nobody"
"""PgBouncer does not run as root."""


class PgBouncer(EngineServer):
    """`through` leads the URLs of `urls` through it: all of one server, which listens on a port."""

    def __init__(self, *urls: str, mode: str = "transaction", settings: str = "", pool_size: int = 20) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="ms-pgbouncer-")))
        self._urls, self._mode, self._settings, self._pool_size = urls, mode, settings, pool_size

    @property
    def url(self) -> str:
        return self.through(self._urls[0])

    def through(self, url: str) -> str:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{self.port}", query="").geturl()

    def command(self) -> list[str]:
        words = [str(find_program("pgbouncer")), str(self._write_files())]
        return ["env", f"LD_LIBRARY_PATH={library_path()}", *words]

    def _write_files(self) -> Path:
        (port,) = parse_qs(urlsplit(self._urls[0]).query)["port"]
        users = {(unquote(p.username or ""), unquote(p.password or "")) for p in map(urlsplit, self._urls)}
        (self.folder / "users.txt").write_text("".join(f'"{user}" "{password}"\n' for user, password in users))
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = scram-sha-256\n"
            f"auth_file = {self.folder}/users.txt\npool_mode = {self._mode}\nmax_client_conn = 500\n"
            f"default_pool_size = {self._pool_size}\n{self._settings}\n"
            + (f"user = {USER}\n" if os.geteuid() == 0 else "")
        )
        if os.geteuid() == 0:
            account = pwd.getpwnam(USER)
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
        return config

    async def __aenter__(self) -> PgBouncer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
