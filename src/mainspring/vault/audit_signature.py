"""Signatures of audit heads: Ed25519 under a key that is derived from a master key.

The public key lets an outsider verify a head. The private key is in the memory of servers only, so the owner of the
database cannot sign.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mainspring.vault.keyring import Keyring

PURPOSE = "audit heads"


def signed_text(tenant: int, seq: int, hashed: bytes) -> bytes:
    """The text that the signature of a head covers."""
    return f"mainspring audit head {tenant} {seq} {hashed.hex()}".encode()


def sign(keyring: Keyring, *, tenant: int, seq: int, hashed: bytes) -> tuple[str, bytes]:
    """Sign a head with the current master key; return the id of that key and the signature."""
    key_id = keyring.current
    return key_id, _key(keyring, key_id).sign(signed_text(tenant, seq, hashed))


def is_signed(keyring: Keyring, key_id: str, signature: bytes, *, tenant: int, seq: int, hashed: bytes) -> bool:
    try:
        _key(keyring, key_id).public_key().verify(signature, signed_text(tenant, seq, hashed))
    except InvalidSignature:
        return False
    return True


def public_key(keyring: Keyring, key_id: str) -> bytes:
    """The 32 bytes with which an outsider verifies the signatures of a key."""
    return _key(keyring, key_id).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _key(keyring: Keyring, key_id: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(keyring.derived(PURPOSE, key_id=key_id))
