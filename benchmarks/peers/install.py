"""Installs the peers on first use, each in its own folder below a cache directory, and never in the repository.

`BENCH_CACHE` names the directory; by default it is `mainspring-bench` below the user's cache directory. A Debian
package is downloaded and unpacked there, which starts nothing and needs no rights.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
GO = {"river": "github.com/riverqueue/river", "asynq": "github.com/hibiken/asynq"}
DEBIAN = {
    "redis": ("redis-server", ["redis-server", "redis-tools", "liblzf1", "libjemalloc2"]),
    "wrk": ("wrk", ["wrk", "libluajit-5.1-2"]),
}
NEWER_PYTHON = {"oban": (3, 12)}


class NotInstalled(Exception):
    """Why a peer or a program is not available here."""


def cache() -> Path:
    given = os.environ.get("BENCH_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainspring-bench"


def python_peer(name: str) -> list[str]:
    """Return the command of a virtual environment that has what `<name>.txt` pins."""
    requirements = FOLDER / f"{name}.txt"
    python = _python(name)
    folder = cache() / f"{name}-{_digest(requirements.read_text() + python)}"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(name, [python, "-m", "venv", str(folder)])
        _run(name, [str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(requirements)])
        (folder / "installed").touch()
    return [str(folder / "bin" / "python")]


def node_peer(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of Node, and the environment in which it finds what `<name>.txt` pins."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("Node.js with npm is not installed")
    packages = (FOLDER / f"{name}.txt").read_text().split()
    folder = cache() / f"{name}-{_digest(' '.join(packages))}"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text("{}")
        _run(name, [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *packages])
        (folder / "installed").touch()
    return [node], {"NODE_PATH": str(folder / "node_modules")}


def go_peer(name: str) -> list[str]:
    """Return a program that is built from `go/<name>`, with the modules that go.sum names."""
    go = shutil.which("go")
    if go is None:
        raise NotInstalled("Go is not installed")
    source = FOLDER / "go"
    files = [source / "go.mod", source / "go.sum", *sorted(source.glob("*/*.go"))]
    program = cache() / f"{name}-{_digest(''.join(file.read_text() for file in files))}" / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _run(name, [go, "build", "-mod=readonly", "-o", str(program), f"./{name}"], source)
    return [str(program)]


def program(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the command of redis or wrk and its environment: from the path, or from unpacked Debian packages."""
    command, packages = DEBIAN[name]
    found = shutil.which(command)
    if found:
        return [found], {}
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if apt is None or dpkg is None:
        raise NotInstalled(f"{command} is not installed, and neither are apt-get and dpkg")
    folder = cache() / name
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run(name, [apt, "download", *packages], folder)
        for package in sorted(folder.glob("*.deb")):
            _run(name, [dpkg, "-x", str(package), str(folder)])
        (folder / "installed").touch()
    libraries = folder / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    return [str(folder / "usr" / "bin" / command)], {"LD_LIBRARY_PATH": str(libraries)}


def pinned(name: str) -> str:
    """Return the version of a peer."""
    if name in GO:
        found = re.search(rf"{re.escape(GO[name])} v(\S+)", (FOLDER / "go" / "go.mod").read_text())
        return found[1] if found else ""
    first = {"graphile": "graphile-worker", "pgboss": "pg-boss"}.get(name, name)
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        package, _, version = line.replace("==", "@").rpartition("@")
        if package.lower() == first:
            return version
    raise ValueError(f"{name}.txt does not pin {first}")


def redis_version() -> str:
    try:
        command, env = program("redis")
    except NotInstalled:
        return ""
    said = subprocess.run(
        [*command, "--version"], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return said.stdout.partition("v=")[2].partition(" ")[0]


def _python(name: str) -> str:
    """Return an interpreter that is new enough for the peer."""
    needed = NEWER_PYTHON.get(name, (3, 11))
    if sys.version_info >= needed:
        return str(Path(sys.executable).resolve())  # the same from every checkout
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    names = [f"python3.{minor}" for minor in range(needed[1], 16)]
    managed = [str(path) for minor in names for path in root.glob(f"versions/*/bin/{minor}")]
    for command in [*names, *managed]:
        if (
            shutil.which(command)
            and subprocess.run([command, "--version"], capture_output=True, check=False).returncode == 0
        ):
            return command
    raise NotInstalled(f"needs Python {needed[0]}.{needed[1]}, and this is {platform.python_version()}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _run(name: str, command: list[str], folder: Path | None = None) -> None:
    print(f"installing {name}: {' '.join(command[:4])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise NotInstalled(f"`{' '.join(command[:4])}` failed: {last[0][:200]}")
