"""A base image from the Debian packages that this machine has installed, and the wheels of the lock file.

With both, an image is built without a registry and without a network.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.tree import ROOT

PACKAGES = (
    "base-files", "base-passwd", "bash", "ca-certificates", "coreutils", "dash", "findutils", "grep", "libc-bin",
    "login", "passwd", "python3", "python3-venv", "sed",
)  # fmt: skip
LOCKS = ("requirements-image.lock", "requirements-build.lock")
WHEELS = ROOT / ".cache" / "wheels"
_FIELDS = "${Package}\t${db:Status-Status}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
_LEFT_OUT = re.compile(r"/usr/share/(doc|man|locale|info|lintian)/|/usr/lib/python3/dist-packages/|\.pyc$")


def closure(wanted: tuple[str, ...] = PACKAGES) -> list[str]:
    """Return the installed packages that these need; skip the test if the machine does not have one of them."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs Debian: the base image is made from its installed packages")
    rows = subprocess.run(["dpkg-query", "-W", "-f", _FIELDS], capture_output=True, text=True, check=True).stdout
    needs: dict[str, list[list[str]]] = {}
    providers: dict[str, str] = {}
    for name, status, depends, provides in (line.split("\t") for line in rows.splitlines()):
        if status == "installed":
            needs[name] = [[_bare(each) for each in some.split("|")] for some in depends.split(",") if some.strip()]
            providers |= {_bare(each): name for each in provides.split(",") if each.strip()}
    found: set[str] = set()
    frontier = list(wanted)
    if missing := [name for name in wanted if name not in needs]:
        pytest.skip(f"needs Debian packages: {' '.join(missing)}")
    while frontier:
        name = frontier.pop()
        if name not in found:
            found.add(name)
            present = (
                [providers.get(one, one) for one in some if providers.get(one, one) in needs] for some in needs[name]
            )
            frontier += [some[0] for some in present if some]
    return sorted(found)


def _bare(name: str) -> str:
    """A package name without its version and architecture."""
    return re.split(r"[ :(]", name.strip())[0]


def base_image(target: Path, packages: tuple[str, ...] = PACKAGES, files: dict[str, str] | None = None) -> Path:
    """Write the root file system of the packages into a tar file, with a pip that installs from /wheels only.

    `files` are programs to add, by their path.
    """
    listed = subprocess.run(["dpkg-query", "-L", *closure(packages)], capture_output=True, text=True, check=True).stdout
    paths = {_real(path) for path in listed.splitlines() if path.startswith("/") and not _LEFT_OUT.search(path)}
    paths |= {"/etc/ssl/certs/ca-certificates.crt", "/etc/ld.so.cache"}
    with tarfile.open(target, "w") as archive:
        for path in sorted(path for path in paths if os.path.lexists(path) and len(path) > 1):
            archive.add(path, path[1:], recursive=False)
        for name in ("passwd", "group"):
            archive.add(f"/usr/share/base-passwd/{name}.master", f"etc/{name}")
        _add(archive, "etc/pip.conf", b"[global]\nno-index = true\nfind-links = /wheels\n")
        _add(archive, "etc/shadow", b"root:*:1::::::\n", mode=0o640)
        for name, text in (files or {}).items():
            _add(archive, name, text.encode(), mode=0o755)
    return target


def _real(path: str) -> str:
    """The path without links in its folder: packages still list files below /bin and /lib, which are links."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def wheels() -> Path:
    """Return the folder with what the image installs; download it once for each state of the lock files."""
    digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in LOCKS)).hexdigest()[:16]
    folder = WHEELS / digest
    if not folder.is_dir():
        shutil.rmtree(WHEELS, ignore_errors=True)
        fetched = WHEELS / f"{digest}.{os.getpid()}"
        for command in _downloads(fetched):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(fetched, ignore_errors=True)
                pytest.skip(f"the wheels could not be downloaded: {done.stderr[-300:]}")
        fetched.rename(folder)
    return folder


def _downloads(folder: Path) -> Iterator[list[str]]:
    """Commands of a pip on the Python of the base image, which decides which packages of a lock file it needs."""
    yield ["/usr/bin/python3", "-m", "venv", str(folder / "pip")]
    pip = [str(folder / "pip" / "bin" / "pip"), "--disable-pip-version-check", "download", "--quiet"]
    for lock in LOCKS:
        yield [*pip, "--only-binary", ":all:", "--no-deps", "--require-hashes", "-r", lock, "-d", str(folder)]
    yield ["rm", "-r", str(folder / "pip")]
