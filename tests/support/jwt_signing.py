"""Signs JWTs with the primitives of `cryptography`, apart from the code that verifies them."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def part(value: Any) -> str:
    """A part of a JWT; bytes are taken as they are."""
    return encoded(value if isinstance(value, bytes) else json.dumps(value).encode())


def new_key(algorithm: str, *, bits: int = 2048) -> PrivateKey:
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def signature(key: PrivateKey, data: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def signed(key: PrivateKey, header: Any, claims: Any) -> str:
    """A JWT. Header and claims are objects, or the bytes to sign."""
    content = f"{part(header)}.{part(claims)}"
    return f"{content}.{encoded(signature(key, content.encode()))}"


def public_jwk(key: PrivateKey, kid: str, algorithm: str) -> dict[str, str]:
    found = {"kid": kid, "use": "sig", "alg": algorithm}
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {**found, "kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return {**found, "kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key().public_bytes_raw())}
    point = key.public_key().public_numbers()
    x, y = (encoded(value.to_bytes(32, "big")) for value in (point.x, point.y))
    return {**found, "kty": "EC", "crv": "P-256", "x": x, "y": y}


def _number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))
