"""Master keys, and the envelope around each secret: AES-256-GCM with a data key of its own.

A data key encrypts one version of one value; the master key wraps the data key. Both are bound to the tenant, the name
and the version, so that a row copied to another place does not decrypt. Changing the master key wraps data keys again
and leaves the values as they are.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mainspring.domain.errors import Conflict, Invalid

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MAX_KEYS = 100
MAX_FILE_BYTES = 65_536
FORMAT = b"\x01"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")
_WRAPPED_END = 1 + NONCE_BYTES + KEY_BYTES + TAG_BYTES


class KeyMissing(Conflict):
    """The master key is not configured, or is not the one that encrypted the value."""

    code = "secret_key_missing"


class Tampered(Conflict):
    """A stored value does not decrypt: it was changed, moved, or encrypted under another key of the same id."""

    code = "secret_tampered"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted value, and the id of the master key that opens it."""

    key_id: str
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Bound:
    """What a value is bound to: the same value does not decrypt as anything else.

    `row_id` is that of a channel or trigger: one that is deleted and created again under its name is another one.
    """

    tenant: int
    kind: str
    name: str
    version: int = 0
    row_id: str | None = None

    def context(self, *more: str) -> bytes:
        row = () if self.row_id is None else (self.row_id,)
        parts = ("mainspring", str(self.tenant), self.kind, self.name, str(self.version), *row, *more)
        return b"".join(len(part := text.encode()).to_bytes(4, "big") + part for text in parts)


class Keyring:
    """Master keys by id. The first one encrypts; all of them decrypt.

    A file is read again when a value needs a key that is not known yet: another process may have added it.
    """

    def __init__(self, keys: Mapping[str, bytes], *, file: Path | None = None) -> None:
        if not keys:
            raise Invalid("there is no master key; create one with: mainspring secrets new-key FILE")
        self._keys = dict(keys)
        self._file = file

    @property
    def current(self) -> str:
        return next(iter(self._keys))

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def reload(self) -> None:
        """Read the file again, if the keys come from one."""
        if self._file is not None:
            self._keys = read_keys(read_key_file(self._file), str(self._file))

    def seal(self, value: bytes, bound: Bound) -> Sealed:
        data_key, key_id = AESGCM.generate_key(256), self.current
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + AESGCM(data_key).encrypt(nonce, value, bound.context())
        return Sealed(key_id, FORMAT + self._wrap(data_key, key_id, bound) + sealed)

    def open(self, sealed: Sealed, bound: Bound) -> bytes:
        data_key = self._unwrap(sealed, bound)
        body = sealed.envelope[_WRAPPED_END:]
        try:
            return AESGCM(data_key).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], bound.context())
        except (InvalidTag, ValueError):
            raise _tampered(bound) from None

    def wrap_again(self, sealed: Sealed, bound: Bound) -> Sealed:
        """Wrap the data key of a value in the current master key. The value is not decrypted."""
        wrapped = self._wrap(self._unwrap(sealed, bound), self.current, bound)
        return Sealed(self.current, FORMAT + wrapped + sealed.envelope[_WRAPPED_END:])

    def derived(self, purpose: str, *, key_id: str | None = None) -> bytes:
        """Return a key for another purpose, made from a master key; from the current one by default."""
        key = self._key(key_id or self.current)
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"mainspring {purpose}".encode()).derive(key)

    def _wrap(self, data_key: bytes, key_id: str, bound: Bound) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(self._key(key_id)).encrypt(nonce, data_key, bound.context(key_id))

    def _unwrap(self, sealed: Sealed, bound: Bound) -> bytes:
        key = self._key(sealed.key_id)
        if sealed.envelope[:1] != FORMAT or len(sealed.envelope) < _WRAPPED_END + NONCE_BYTES + TAG_BYTES:
            raise _tampered(bound)
        nonce, wrapped = sealed.envelope[1 : 1 + NONCE_BYTES], sealed.envelope[1 + NONCE_BYTES : _WRAPPED_END]
        try:
            return AESGCM(key).decrypt(nonce, wrapped, bound.context(sealed.key_id))
        except InvalidTag:
            raise _tampered(bound) from None

    def _key(self, key_id: str) -> bytes:
        if key_id not in self._keys:
            self.reload()
        if key_id not in self._keys:
            known = ", ".join(self._keys)
            raise KeyMissing(
                f"the master key {key_id!r} is needed, and this server has {known}; add it to the key file"
            )
        return self._keys[key_id]


def _tampered(bound: Bound) -> Tampered:
    return Tampered(f"the stored value of {bound.kind} {bound.name!r} does not decrypt; set it again")


def new_key_line(key_id: str) -> str:
    """Return a line of a key file with a new random key."""
    if not _ID.match(key_id):
        raise Invalid(f"{key_id!r} is not the id of a key: letters, digits, '_', '-'; at most 32")
    return f"{key_id} {base64.b64encode(os.urandom(KEY_BYTES)).decode()}"


def read_keys(text: str, source: str) -> dict[str, bytes]:
    """Read master keys: an id and 32 bytes in base64 on each line; `#` begins a comment. Errors never quote a line."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        hint = "write an id and 32 bytes in base64, or use: mainspring secrets new-key FILE"
        if len(words) != 2 or not _ID.match(words[0]):
            raise Invalid(f"{source}: line {number} is not a master key; {hint}")
        try:
            key = base64.b64decode(words[1], validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(f"{source}: the key in line {number} is not base64; {hint}") from None
        if len(key) != KEY_BYTES or words[0] in keys:
            wrong = "is there twice" if words[0] in keys else f"has {len(key)} bytes instead of {KEY_BYTES}"
            raise Invalid(f"{source}: the key in line {number} {wrong}; {hint}")
        keys[words[0]] = key
    if not keys or len(keys) > MAX_KEYS:
        raise Invalid(f"{source} has {len(keys)} master keys; from 1 to {MAX_KEYS} are needed")
    return keys


def read_key_file(path: Path) -> str:
    """Read a key file that other users cannot read."""
    try:
        with path.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise Invalid(f"{path}: every user of this machine can read the master key; use: chmod 600 {path}")
            return opened.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise Invalid(f"cannot read the key file {path}: {error.strerror}") from None


def open_keyring(*, file: str | None, text: str | None, descriptor: int | None) -> Keyring | None:
    """Return the master keys from the first source that is given: a file descriptor, a file, a text; None: no keys."""
    if descriptor is not None:
        try:
            with os.fdopen(descriptor, "rb") as opened:
                given = opened.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError as error:
            raise Invalid(f"cannot read the master key from file descriptor {descriptor}: {error.strerror}") from None
        return Keyring(read_keys(given, f"file descriptor {descriptor}"))
    if file is not None:
        return Keyring(read_keys(read_key_file(Path(file)), file), file=Path(file))
    if text is not None:
        return Keyring(read_keys(text, "MAINSPRING_SECRET_KEY"))
    return None
