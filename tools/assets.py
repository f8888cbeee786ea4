"""Put the scripts of others that the web UI uses into the package, as the lock file in tools/npm says.

    python -m tools.assets                  fails if it cannot
    python -m tools.assets --if-possible    says so and goes on: pages are whole without them, only plainer

Does nothing when they are there already. Nothing of a package is executed, only copied.
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
PATIENCE_S = 60
FILES = {
    "dagre.js": "@dagrejs/dagre/dist/dagre.esm.js",
    "dagre.LICENSE.txt": "@dagrejs/dagre/LICENSE",
    "graphlib.LICENSE.txt": "@dagrejs/graphlib/LICENSE",
}


def main(*, must: bool) -> None:
    if STAMP.is_file() and STAMP.read_text() == digest():
        return
    trouble = build()
    if trouble:
        print(f"Pages will do without the scripts that npm would bring: {trouble}.", file=sys.stderr)
        if must:
            sys.exit(1)


def digest() -> str:
    """Fingerprint of what the files depend on."""
    content = hashlib.sha256()
    for file in (LOCKED / "package.json", LOCKED / "package-lock.json", Path(__file__)):
        content.update(file.read_bytes())
    return content.hexdigest()


def build() -> str:
    """Fetches and copies; an empty text if all went well, otherwise what did not."""
    npm = shutil.which("npm")
    if npm is None:
        return "there is no npm here"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(LOCKED / file, place)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return f"npm did not answer within {PATIENCE_S} s"
        if done.returncode:
            return f"npm ended with {done.returncode}; try `npm ci` in tools/npm to see why"
        copy(place / "node_modules")
    return ""


def copy(packages: Path) -> None:
    """The stamp comes last: whoever is interrupted starts again."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name, path in FILES.items():
        text = (packages / path).read_text()
        # Maps are not served, so nobody is sent to look for them.
        kept = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
        (TARGET / name).write_text("\n".join(kept) + "\n")
    STAMP.write_text(digest())


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--if-possible"]):
        sys.exit("usage: python -m tools.assets [--if-possible]")
    main(must=not sys.argv[1:])
