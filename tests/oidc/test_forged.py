"""Forged, malformed and misused JWTs: each is refused with the same answer, so that a forger learns nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from mainspring.oidc import jwt
from mainspring.oidc.jwt import MAX_TOKEN_CHARS
from tests.conftest import Cluster
from tests.oidc.conftest import auth_of, bearer
from tests.support.jwt_signing import encoded, new_key, part, public_jwk, signed
from tests.support.oidc_issuer import AUDIENCE, WEB_CLIENT, Provider

pytestmark = pytest.mark.anyio
KEY = new_key("RS256")
"""A key of the forger."""
Forge = Callable[[Provider], Awaitable[str]]


def claims_of(issuer: Provider, **more: Any) -> dict[str, Any]:
    now = int(time.time())
    standard = {"iss": issuer.url, "sub": "alice", "aud": AUDIENCE, "iat": now, "nbf": now, "exp": now + 300}
    return {**standard, "groups": ["admins"], **more}


def by_stranger(header: Any = None, **claims: Any) -> Forge:
    """Signed by a key that is not the issuer's."""

    async def forge(issuer: Provider) -> str:
        head = {"alg": "RS256", "kid": "key-1", "typ": "JWT", **(header or {})}
        return signed(KEY, head, claims_of(issuer, **claims))

    return forge


def by_issuer(header: dict[str, Any] | None = None, **claims: Any) -> Forge:
    """Signed by the issuer, with claims that are not for this server. Callables get the present time."""

    async def forge(issuer: Provider) -> str:
        found = {name: value(time.time()) if callable(value) else value for name, value in claims.items()}
        return await issuer.mint(header=header, **{"groups": ["admins"], **found})

    return forge


def changed(change: Callable[[str], str]) -> Forge:
    """A valid token, changed after it was signed."""

    async def forge(issuer: Provider) -> str:
        return change(await issuer.mint(groups=["admins"]))

    return forge


def without_signature(algorithm: Any, signature: str = "") -> Forge:
    async def forge(issuer: Provider) -> str:
        return f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims_of(issuer))}.{signature}"

    return forge


async def with_the_public_key(issuer: Provider, algorithm: str = "HS256") -> str:
    """The classic confusion: the public key of the issuer as the secret of an HMAC."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        key = (await http.get(f"{issuer.url}/jwks")).json()["keys"][0]
    n, e = (int.from_bytes(base64.urlsafe_b64decode(key[name] + "==="), "big") for name in "ne")
    pem = (
        RSAPublicNumbers(e, n)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    content = f"{part({'alg': algorithm, 'kid': key['kid']})}.{part(claims_of(issuer))}"
    return f"{content}.{encoded(hmac.new(pem, content.encode(), hashlib.sha256).digest())}"


def with_text(change: Callable[[str], str]) -> Forge:
    """Signed by the issuer, with claims that JSON writers do not produce."""

    async def forge(issuer: Provider) -> str:
        found: str = await issuer.control("sign", claims=change(json.dumps(claims_of(issuer))))
        return found

    return forge


def swapped(token: str, at: int, value: str) -> str:
    parts = token.split(".")
    return ".".join([*parts[:at], value, *parts[at + 1 :]])


def edited(token: str, **claims: Any) -> str:
    body = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==="))
    return swapped(token, 1, part({**body, **claims}))


OWN_JWK = public_jwk(KEY, "mine", "RS256")
FORGED: dict[str, Forge] = {
    "alg none": without_signature("none"),
    "alg none with a signature": without_signature("none", "AAAA"),
    "alg NoNe": without_signature("NoNe", "AAAA"),
    "alg is a number": without_signature(256, "AAAA"),
    "alg is missing": without_signature(None, "AAAA"),
    "HS256 with the public key": with_the_public_key,
    "another algorithm of the same key": by_stranger({"alg": "PS256"}),
    "a larger hash than the issuer's": by_issuer({"alg": "RS512"}),
    "the key of a stranger": by_stranger(),
    "an unknown kid": by_stranger({"kid": "mine"}),
    "kid is a path": by_stranger({"kid": "../../../../dev/null"}),
    "kid is an object": by_stranger({"kid": {"a": 1}}),
    "kid is empty": by_stranger({"kid": ""}),
    "kid is huge": by_stranger({"kid": "k" * 1000}),
    "jwk with the stranger's key": by_stranger({"kid": "mine", "jwk": OWN_JWK}),
    "jku of the stranger": by_stranger({"kid": "mine", "jku": "http://127.0.0.1:1/jwks"}),
    "x5u of the stranger": by_stranger({"kid": "mine", "x5u": "http://127.0.0.1:1/cert"}),
    "x5c of the stranger": by_stranger({"kid": "mine", "x5c": ["AAAA"]}),
    "crit with an unknown extension": by_issuer({"crit": ["exp2"], "exp2": 1}),
    "crit that is empty": by_issuer({"crit": []}),
    "b64 false": by_issuer({"b64": False}),
    "zip": by_issuer({"zip": "DEF"}),
    "typ of a logout token": by_issuer({"typ": "logout+jwt"}),
    "typ of a proof of possession": by_issuer({"typ": "dpop+jwt"}),
    "typ is a list": by_issuer({"typ": ["JWT"]}),
    "another audience": by_issuer(aud="another"),
    "an audience that begins alike": by_issuer(aud=f"{AUDIENCE}-2"),
    "the audience of the browser sign-in": by_issuer(aud=WEB_CLIENT),
    "audiences without this one": by_issuer(aud=["a", "b"]),
    "audiences that are not texts": by_issuer(aud=[AUDIENCE, 1]),
    "an audience in an object": by_issuer(aud={AUDIENCE: True}),
    "an array of too many audiences": by_issuer(aud=[AUDIENCE, *(f"a{n}" for n in range(60))]),
    "no audience": by_issuer(aud=None),
    "another issuer": by_issuer(iss="https://id.example.com"),
    "the issuer with a slash": changed(lambda t: edited(t, iss="http://127.0.0.1/")),
    "no issuer": by_issuer(iss=None),
    "an issuer that is a list": by_issuer(iss=["x"]),
    "expired": by_issuer(exp=lambda now: now - 31),
    "expired long ago": by_issuer(exp=1, nbf=0, iat=0),
    "no exp": by_issuer(exp=None),
    "exp is a text": by_issuer(exp=lambda now: str(now + 60)),
    "exp is true": by_issuer(exp=True),
    "exp without end": by_issuer(exp=lambda _: 10**15),
    "valid for too long": by_issuer(exp=lambda now: now + 86_400 + 100),
    "not valid yet": by_issuer(nbf=lambda now: now + 40),
    "no nbf": by_issuer(nbf=None),
    "nbf is negative": by_issuer(nbf=-1),
    "issued in the future": by_issuer(iat=lambda now: now + 40),
    "no subject": by_issuer(sub=None),
    "an empty subject": by_issuer(sub=""),
    "a subject that is a number": by_issuer(sub=7),
    "a subject that is too long": by_issuer(sub="s" * 256),
    "a subject that is not ASCII": by_issuer(sub="аlice"),
    "a subject with a line break": by_issuer(sub="alice\nbob"),
    "a claim twice": with_text(lambda text: text[:-1] + ', "sub": "root"}'),
    "a claim twice, with an escape": with_text(lambda text: text[:-1] + ', "\\u0073ub": "root"}'),
    "a number that is NaN": with_text(lambda text: text[:-1] + ', "more": NaN}'),
    "a number of a thousand digits": with_text(lambda text: text[:-1] + f', "more": {"9" * 1000}}}'),
    "an instant that overflows": with_text(lambda text: text.replace('"exp": ', '"exp": 1e400, "e": ')),
    "nested too deep": by_issuer(more=[[[[[[[[[[1]]]]]]]]]]),
    "a token in a token": changed(lambda t: swapped(t, 1, encoded(t.encode()))),
    "changed claims": changed(lambda t: edited(t, sub="root")),
    "changed header": changed(lambda t: swapped(t, 0, part({"alg": "RS256", "kid": "key-1", "typ": "at+jwt"}))),
    "no signature": changed(lambda t: swapped(t, 2, "")),
    "half a signature": changed(lambda t: t[: -len(t.split(".")[2]) // 2]),
    "another signature": changed(lambda t: t[:-8] + ("A" * 8 if t[-8:] != "A" * 8 else "B" * 8)),
    "stray bits at the end": changed(lambda t: t[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[t[-1]]),
    "padding": changed(lambda t: t + "=="),
    "standard base64": changed(lambda t: swapped(t, 0, t.split(".")[0] + "+/")),
    "five parts": changed(lambda t: f"{t}.AAAA.AAAA"),
    "an empty header": changed(lambda t: swapped(t, 0, "")),
    "a header that is a list": changed(lambda t: swapped(t, 0, part(["RS256"]))),
    "a header that is not UTF-8": changed(lambda t: swapped(t, 0, part(b'{"alg": "\xff"}'))),
    "claims that are no JSON": changed(lambda t: swapped(t, 1, part(b"{"))),
    "claims that are a text": changed(lambda t: swapped(t, 1, part("sub"))),
    "too long": by_issuer(more="x" * MAX_TOKEN_CHARS),
    "dots only": changed(lambda _: ".."),
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_token_is_refused_without_a_hint(
    federated: Cluster, issuer: Provider, http: httpx2.AsyncClient, name: str
) -> None:
    token = await FORGED[name](issuer)
    answer = await http.get("/api/v1/jobs", headers=bearer(token))
    document = answer.json()
    shown = (answer.status_code, document["code"], document["detail"], document["errors"])
    assert shown == (401, "unauthenticated", "invalid token: unknown, expired or revoked", [])
    assert answer.headers["www-authenticate"] == "Bearer"


ACCEPTED: dict[str, Forge] = {
    "plain": by_issuer(),
    "typ of an access token": by_issuer({"typ": "at+jwt"}),
    "typ with its prefix": by_issuer({"typ": "application/at+JWT"}),
    "several audiences": by_issuer(aud=["a", AUDIENCE]),
    "unknown header": by_issuer({"x5t": "abc", "custom": "1"}),
    "expired within the skew": by_issuer(exp=lambda now: now - 20),
    "not valid yet within the skew": by_issuer(nbf=lambda now: now + 15, iat=lambda now: now + 15),
    "fractions of a second": by_issuer(exp=lambda now: now + 60.5),
    "a name that is not ASCII": by_issuer(name="Ålice 李"),
    "jku beside the right key": by_issuer({"jku": "http://127.0.0.1:1/jwks"}),
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_what_differs_from_them_is_accepted(issuer: Provider, http: httpx2.AsyncClient, name: str) -> None:
    answer = await http.get("/api/v1/jobs", headers=bearer(await ACCEPTED[name](issuer)))
    assert answer.status_code == 200, answer.text


async def test_headers_that_name_keys_are_never_fetched(federated: Cluster, issuer: Provider) -> None:
    """An issuer that counts: its JWK set is asked for, and no address of the token."""
    token = signed(KEY, {"alg": "RS256", "kid": "mine", "jku": f"{issuer.url}/evil"}, claims_of(issuer))
    async with httpx2.AsyncClient(base_url=federated.url, trust_env=False) as http:
        assert (await http.get("/api/v1/jobs", headers=bearer(token))).status_code == 401
    assert await issuer.count("/evil") == 0


async def test_a_token_without_kid_needs_an_issuer_with_one_key(federated: Cluster, issuer: Provider) -> None:
    token = jwt.read(await issuer.mint(header={"kid": None}, groups=["staff"]))
    assert token.key_id is None
    identified = auth_of(federated).providers[0]
    assert (await identified.identify(token)).role == "viewer"
    kid = await issuer.control("rotate")
    await identified._keys._refresh()
    with pytest.raises(jwt.Refused):
        await identified.identify(jwt.read(await issuer.mint(header={"kid": None}, groups=["staff"])))
    await issuer.control("withdraw", kid=kid)
    await issuer.control("set", current="key-1")
    await identified._keys._refresh()
