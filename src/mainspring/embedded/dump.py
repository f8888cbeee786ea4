"""Runs pg_dump, pg_restore and psql against a database. Passwords are passed by the environment, not by arguments."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from mainspring.domain.errors import MainspringError
from mainspring.embedded.binaries import find_binaries

DUMP = ("--format=custom", "--no-owner", "--no-privileges")
ONE_TRANSACTION = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")
MAX_ERROR_CHARS = 2000
_ROLE_POLICY = re.compile(r"^\d+; \d+ \d+ POLICY \S+ \S+ all_of_")


class ProgramFailed(MainspringError):
    code = "program_failed"


def dump(url: str, file: Path, *, schema: str, snapshot: str) -> None:
    """Write a schema, as one exported snapshot sees it, in the custom format of pg_dump."""
    _run(
        "pg_dump",
        [*DUMP, f"--schema={schema}", f"--snapshot={snapshot}", f"--file={file}"],
        url,
    )


def listing(file: Path) -> str:
    """Return the table of contents; an unreadable file is an error."""
    return _run("pg_restore", ["--list", str(file)])


def read_through(file: Path) -> None:
    """Decompress every row of a dump, and keep none."""
    _run("pg_restore", ["--no-owner", f"--file={os.devnull}", str(file)])


def restore(url: str, file: Path, script: Path, *, last: str) -> None:
    """Restore a dump and execute the statement `last`, in one transaction. `script` is a file to write and remove."""
    try:
        script.touch(mode=0o600)
        with tempfile.NamedTemporaryFile("w", suffix=".list") as contents:
            contents.write(_without_roles(listing(file)))
            contents.flush()
            options = ["--no-owner", "--no-privileges", f"--use-list={contents.name}", f"--file={script}"]
            _run("pg_restore", [*options, str(file)])
        _run(
            "psql",
            [*ONE_TRANSACTION, "--output", os.devnull, "--file", str(script), "--command", last],
            url,
        )
    finally:
        script.unlink(missing_ok=True)


def _without_roles(contents: str) -> str:
    """Leave out policies of single roles: they may not exist here. `mainspring db migrate` creates them again."""
    return "".join(line for line in contents.splitlines(keepends=True) if not _ROLE_POLICY.search(line))


def _run(program: str, words: Sequence[str], url: str | None = None) -> str:
    path = find_binaries().bin_dir / program
    if not path.exists():
        raise ProgramFailed(f"{path} is missing; set MAINSPRING_PG_BIN to a folder with all PostgreSQL programs")
    environment = dict(os.environ)
    if url is not None:
        url, password = _split_password(url)
        words = [*words, f"--dbname={url}"]
        if password is not None:
            environment["PGPASSWORD"] = password
    done = subprocess.run([path, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramFailed(f"{program} failed: {done.stderr.strip()[-MAX_ERROR_CHARS:]}")
    return done.stdout


def _split_password(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    return urlunsplit(parts._replace(netloc=f"{name}{at}{host}")), unquote(password) if colon else None
