"""Files with secrets: written for this user alone, read only if other users cannot."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mainspring.domain.errors import Unauthenticated

MAX_SECRET_CHARS = 4096


def write_private(file: Path, text: str) -> None:
    """Write a file that only this user can read, atomically."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text + "\n")
    new.replace(file)


def read_private(file: Path, what: str) -> str:
    """Return the content of a file that other users cannot read; `what` names the secret in errors."""
    try:
        with file.open(encoding="utf-8") as opened:
            if os.fstat(opened.fileno()).st_mode & stat.S_IROTH:
                raise Unauthenticated(
                    f"other users can read the {what} in {file}; run: chmod 600 {file}", code="unsafe_token"
                )
            return opened.read(MAX_SECRET_CHARS).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthenticated(f"cannot read the {what} from {file}: {error}") from None
