"""Set up .venv from the lock files: `install.py runtime` to use Mainspring, `install.py dev` to work on it.

Does nothing when .venv already matches pyproject.toml and the locks. Needs only the standard library. Installs
with the pinned uv, several times faster than pip, and falls back to pip if uv is not available.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
BUILD_LOCK = "requirements-build.lock"
LOCKS = {"runtime": "requirements.lock", "dev": "requirements-dev.lock"}


def main(profile: str) -> None:
    # The dev set contains the runtime set, so either stamp satisfies a request for the runtime.
    if any(stamp(name).is_file() and stamp(name).read_text() == digest(name) for name in {profile, "dev"}):
        return
    started = time.monotonic()
    print_message(f"Setting up .venv ({profile}) with Python {sys.version.split()[0]} ...")
    if not usable():
        create()
    install(profile)
    stamp(profile).write_text(digest(profile))
    print_message(f"Set up .venv in {time.monotonic() - started:.0f} s.")


def stamp(profile: str) -> Path:
    return VENV / f".installed-{profile}"


def digest(profile: str) -> str:
    """Fingerprint of everything an installation depends on, including its path: a moved .venv is broken."""
    content = hashlib.sha256(str(ROOT).encode())
    for name in ("pyproject.toml", BUILD_LOCK, LOCKS[profile], "tools/install.py"):
        content.update((ROOT / name).read_bytes())
    return content.hexdigest()


def usable() -> bool:
    """Whether .venv was created at this path, and its Python starts and is new enough."""
    probe = f"import sys; sys.exit(sys.version_info < (3, 11) or sys.prefix != {str(VENV)!r})"
    activate = VENV / "bin" / "activate"
    if not PYTHON.exists() or not activate.is_file() or str(VENV) not in activate.read_text():
        return False
    return subprocess.run([PYTHON, "-c", probe], capture_output=True, check=False).returncode == 0


def create() -> None:
    ensure_venv_module()
    shutil.rmtree(VENV, ignore_errors=True)
    run(sys.executable, "-m", "venv", str(VENV))


def ensure_venv_module() -> None:
    """Install the package with venv and ensurepip, which Debian splits from Python, if root lacks it."""
    if have_venv_module():
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print_message(f"This Python lacks venv; installing {package} ...")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=600"]  # waits for another apt process
        subprocess.run([*apt, "update"], env=quiet, check=False)
        subprocess.run([*apt, "install", package], env=quiet, check=False)
    if not have_venv_module():
        sys.exit(
            f"{sys.executable} cannot create virtual environments: its venv or ensurepip module is missing.\n"
            f"On Debian or Ubuntu: sudo apt install {package}\n"
            f"Or name another Python: make PYTHON=/path/to/python3 ..."
        )


def have_venv_module() -> bool:
    command = [sys.executable, "-c", "import venv, ensurepip"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(profile: str) -> None:
    # A .venv made by uv has no pip of its own.
    if subprocess.run([PYTHON, "-c", "import pip"], capture_output=True, check=False).returncode:
        run(str(PYTHON), "-m", "ensurepip")
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "install", "--require-hashes", "--only-binary", "uv", "-r", BUILD_LOCK, may_fail=True)
    if UV.exists():
        environment = {**uv_settings(), **os.environ}
        uv = [str(UV), "pip", "install", "--quiet", "--python", str(PYTHON)]
        locked = run(*uv, "--require-hashes", "-r", LOCKS[profile], environment=environment, may_fail=True)
        if locked and run(*uv, "--no-deps", "--no-build-isolation", "-e", ".", environment=environment, may_fail=True):
            return
        print_message("uv could not install everything; retrying with pip.")
    run(*pip, "install", "--require-hashes", "-r", LOCKS[profile])
    run(*pip, "install", "--no-deps", "-e", ".")


def uv_settings() -> dict[str, str]:
    """The pip configuration of this machine as environment variables for uv, which does not read it."""
    listing = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    pip: dict[str, str] = {}
    # Lines read `global.index-url='...'`; a later, more specific section overrides.
    sections = ("global.", "install.", ":env:.")
    for section in sections:
        for line in listing.splitlines():
            key, separator, value = line.partition("=")
            if separator and key.startswith(section):
                pip[key.removeprefix(section).replace("_", "-")] = str(ast.literal_eval(value))
    settings = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(
            place for place in pip.get("find-links", "").split() if "://" in place or Path(place).is_dir()
        ),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_NO_INDEX": pip.get("no-index", ""),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "ALL_PROXY": pip.get("proxy", ""),
        # pip considers every index for every package; the locked hashes make that safe.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    return {name: value for name, value in settings.items() if value}


def run(*command: str, environment: dict[str, str] | None = None, may_fail: bool = False) -> bool:
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code and not may_fail:
        sys.exit(f"Setting up .venv failed at: {' '.join(command)}")
    return code == 0


def print_message(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] not in (["runtime"], ["dev"]):
        sys.exit("usage: install.py runtime|dev")
    main(sys.argv[1])
