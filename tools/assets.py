"""Install the third-party scripts of the web UI into the package, by the lock file in tools/npm.

    python -m tools.assets                  fails if npm can't install them
    python -m tools.assets --if-possible    prints a warning instead: the scripts are optional

Does nothing if they are up to date. Files are only copied; no package script is executed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "tools" / "npm"
TARGET = ROOT / "src" / "mainspring" / "web" / "static" / "assets"
STAMP = TARGET / "built.txt"
NPM_TIMEOUT_S = 60
FILES = {
    "dagre.js": "@dagrejs/dagre/dist/dagre.esm.js",
    "dagre.LICENSE.txt": "@dagrejs/dagre/LICENSE",
    "graphlib.LICENSE.txt": "@dagrejs/graphlib/LICENSE",
}


def main(*, must: bool) -> None:
    if STAMP.is_file() and STAMP.read_text() == digest():
        return
    error = build()
    if error:
        print(f"third-party scripts not installed, the web UI works without them: {error}", file=sys.stderr)
        if must:
            sys.exit(1)


def digest() -> str:
    """Return a hash of the inputs: lock file and this script."""
    content = hashlib.sha256()
    for file in (LOCKED / "package.json", LOCKED / "package-lock.json", Path(__file__)):
        content.update(file.read_bytes())
    return content.hexdigest()


def build() -> str:
    """Download and copy the files; return an empty text, or the error."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(LOCKED / file, place)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=NPM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"npm timed out after {NPM_TIMEOUT_S} s"
        if done.returncode:
            return f"npm exited with {done.returncode}; run `npm ci` in tools/npm for details"
        copy(place / "node_modules")
    return ""


def copy(packages: Path) -> None:
    """Copy the files. The stamp is written last, so that an interrupted copy is repeated."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name, path in FILES.items():
        text = (packages / path).read_text()
        # Source maps are not served.
        kept = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
        (TARGET / name).write_text("\n".join(kept) + "\n")
    STAMP.write_text(digest())


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--if-possible"]):
        sys.exit("usage: python -m tools.assets [--if-possible]")
    main(must=not sys.argv[1:])
