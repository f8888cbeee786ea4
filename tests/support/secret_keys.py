"""Files with master keys for servers of tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from mainspring.cli.private_file import write_private
from mainspring.vault.keyring import new_key_line, open_keyring
from mainspring.vault.vault import Vault


@cache
def key_file() -> Path:
    """The key file that all servers of this test process share."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-keys-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "secret-keys"
    write_private(file, new_key_line("test-1"))
    return file


@cache
def shared_vault() -> Vault:
    """A vault with the keys of that file."""
    return Vault(open_keyring(file=str(key_file()), text=None, descriptor=None))
