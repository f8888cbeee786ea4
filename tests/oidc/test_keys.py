"""Keys of an issuer: rotation, removal, and how often the issuer is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mainspring.oidc import jwt, keys
from mainspring.oidc.fetch import IssuerHttp, IssuerUnavailable
from mainspring.oidc.jwt import Refused
from mainspring.oidc.keys import FRESH_S, MAX_AGE_S, MIN_REFETCH_S, IssuerKeys, usable_keys
from mainspring.oidc.provider import Provider as Verifier
from tests.oidc.conftest import issuer_of
from tests.support.http_receiver import Receiver, receiving, reply
from tests.support.jwt_signing import new_key, public_jwk, signed
from tests.support.oidc_issuer import Provider, provider

pytestmark = pytest.mark.anyio


class HandClock:
    """Monotonic time that moves when the test says so, and wall time with an error."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.error_s = 0.0

    def now_ms(self) -> float:
        import time

        return (time.time() + self.error_s) * 1000

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
async def fresh_issuer() -> AsyncIterator[Provider]:
    async with provider() as running:
        await running.control("set", claims={"groups": ["staff"]})
        yield running


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def verifier(fresh_issuer: Provider, clock: HandClock) -> AsyncIterator[Verifier]:
    made = Verifier(issuer_of(fresh_issuer), clock=clock)
    yield made
    await made.close()


async def accepts(verifier: Verifier, token: str) -> bool:
    try:
        await verifier.identify(jwt.read(token))
    except Refused:
        return False
    return True


async def test_a_new_key_is_picked_up_by_its_first_token(
    fresh_issuer: Provider, verifier: Verifier, clock: HandClock
) -> None:
    old = await fresh_issuer.mint()
    assert await accepts(verifier, old)
    await fresh_issuer.control("rotate")
    new = await fresh_issuer.mint()
    clock.at += MIN_REFETCH_S
    assert await accepts(verifier, new) and await accepts(verifier, old)
    assert await fresh_issuer.count("/jwks") == 2


async def test_unknown_keys_do_not_make_the_server_hammer_the_issuer(
    fresh_issuer: Provider, verifier: Verifier, clock: HandClock
) -> None:
    good = await fresh_issuer.mint()
    assert await accepts(verifier, good)
    stranger = new_key("RS256")
    for round_ in range(3):
        clock.at += MIN_REFETCH_S
        for n in range(20):
            forged = signed(stranger, {"alg": "RS256", "kid": f"{round_}-{n}"}, {"iss": fresh_issuer.url})
            assert not await accepts(verifier, forged)
        assert await accepts(verifier, good)
    assert await fresh_issuer.count("/jwks") == 4


async def test_many_tokens_at_once_share_one_request(fresh_issuer: Provider, verifier: Verifier) -> None:
    tokens = [await fresh_issuer.mint(jti=str(n)) for n in range(10)]
    assert all(await asyncio.gather(*(accepts(verifier, token) for token in tokens)))
    assert await fresh_issuer.count("/jwks") == 1


async def test_a_removed_key_ends(fresh_issuer: Provider, verifier: Verifier, clock: HandClock) -> None:
    old = await fresh_issuer.mint()
    assert await accepts(verifier, old)
    await fresh_issuer.control("rotate")
    await fresh_issuer.control("withdraw", kid="key-1")
    clock.at += FRESH_S
    await accepts(verifier, old)  # starts the request in the background
    assert verifier._keys._fetching is not None
    await verifier._keys._fetching
    assert not await accepts(verifier, old)
    assert await accepts(verifier, await fresh_issuer.mint())


async def test_a_removed_key_ends_at_a_server_that_was_idle(
    fresh_issuer: Provider, verifier: Verifier, clock: HandClock
) -> None:
    old = await fresh_issuer.mint()
    assert await accepts(verifier, old)
    await fresh_issuer.control("withdraw", kid="key-1")
    clock.at += 2 * FRESH_S
    assert not await accepts(verifier, old), "keys that are twice as old are fetched before they are used"


async def test_known_keys_bridge_an_outage_but_not_for_ever(clock: HandClock) -> None:
    async with provider() as issuer:
        await issuer.control("set", claims={"groups": ["staff"]}, lifetime_s=3 * 3600)
        verifier = Verifier(issuer_of(issuer), clock=clock)
        token = await issuer.mint()
        assert await accepts(verifier, token)
    clock.at += MAX_AGE_S - 1
    assert await accepts(verifier, token)
    clock.at += 1
    with pytest.raises(IssuerUnavailable):
        await accepts(verifier, token)
    await verifier.close()


@pytest.mark.parametrize(("error_s", "accepted"), [(-25.0, True), (-35.0, False), (325.0, True), (335.0, False)])
async def test_clocks_may_differ_by_the_skew(
    fresh_issuer: Provider, verifier: Verifier, clock: HandClock, error_s: float, accepted: bool
) -> None:
    """The token is valid for 300 s, and 30 s before and after."""
    clock.error_s = error_s
    assert await accepts(verifier, await fresh_issuer.mint()) == accepted


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA"])
async def test_other_algorithms(algorithm: str, clock: HandClock) -> None:
    async with provider(algorithm) as issuer:
        verifier = Verifier(issuer_of(issuer, algorithm=algorithm), clock=clock)
        token = await issuer.mint(groups=["staff"])
        assert await accepts(verifier, token)
        assert not await accepts(verifier, token[:-6] + ("AAAAAA" if token[-6:] != "AAAAAA" else "BBBBBB"))
        await verifier.close()


# Documents of an issuer -----------------------------------------------------------------------------------


def test_only_keys_that_fit_the_algorithm_are_used() -> None:
    key = public_jwk(new_key("RS256"), "a", "RS256")
    weak = public_jwk(new_key("RS256", bits=1024), "weak", "RS256")
    others: list[Any] = [
        {**key, "kid": "enc", "use": "enc"},
        {**key, "kid": "alg", "alg": "RS512"},
        {**key, "kid": "ops", "key_ops": ["sign"]},
        {**key, "kid": "exponent", "e": "A" * 40},
        {**key, "kid": "number", "n": "!!"},
        {**key, "kid": 7},
        public_jwk(new_key("ES256"), "curve", "ES256"),
        {"kty": "oct", "kid": "secret", "k": "AAAA", "alg": "RS256"},
        weak,
        None,
        "key",
    ]
    assert list(usable_keys({"keys": [*others, key]}, "RS256")) == ["a"]
    assert len(usable_keys({"keys": [{**key, "kid": str(n)} for n in range(200)]}, "RS256")) == keys.MAX_KEYS


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JWK set"),
        (b"[]", "JSON object"),
        (b'{"keys": 1}', "JWK set"),
        (b"{", "JSON object"),
        (b"[" * 100_000, "JSON object"),
        (b'{"keys": ["' + b"x" * 300_000 + b'"]}', "bytes"),
    ],
    ids=["empty", "list", "number", "broken", "deep", "large"],
)
async def test_a_document_that_is_no_key_set_is_refused(body: bytes, why: str, clock: HandClock) -> None:
    async with receiving(lambda _: reply(body=body)) as receiver:
        http = IssuerHttp(receiver.url(""))

        async def fetch() -> dict[str, Any]:
            return await http.get(receiver.url("/jwks"))

        found = IssuerKeys(fetch, "RS256", clock=clock)
        with pytest.raises(IssuerUnavailable) as refused:
            usable_keys(await fetch(), "RS256")
        assert why in refused.value.reason
        with pytest.raises(IssuerUnavailable):
            await found.find("a")
        http.close()


def _document(receiver: Receiver, **more: str) -> bytes:
    import json

    return reply(body=json.dumps({"issuer": receiver.url(""), **more}).encode())


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "http://127.0.0.1:1"},
        {"jwks_uri": "ftp://127.0.0.1/keys"},
        {"jwks_uri": "http://10.0.0.1/keys"},
        {"jwks_uri": "https://169.254.169.254/latest/meta-data"},
        {},
    ],
    ids=["another issuer", "another scheme", "plain http elsewhere", "a metadata service", "no keys"],
)
async def test_an_issuer_cannot_send_the_server_elsewhere(document: dict[str, str], clock: HandClock) -> None:
    paths: list[str] = []
    receiver: Receiver

    def answer(received: Any) -> bytes:
        paths.append(received.line)
        return _document(receiver, **document)

    async with receiving(answer) as receiver:
        verifier = Verifier(issuer_of(type("At", (), {"url": receiver.url("")})), clock=clock)  # type: ignore[arg-type]
        key = new_key("RS256")
        with pytest.raises(IssuerUnavailable):
            await verifier.identify(jwt.read(signed(key, {"alg": "RS256", "kid": "a"}, {"iss": receiver.url("")})))
        assert paths == ["GET /.well-known/openid-configuration HTTP/1.1"]
        await verifier.close()


async def test_redirects_are_not_followed(clock: HandClock) -> None:
    async with receiving(lambda _: reply("302 Found", location="http://127.0.0.1:1/")) as receiver:
        with pytest.raises(IssuerUnavailable) as refused:
            await IssuerHttp(receiver.url("")).get(receiver.url("/jwks"))
        assert "302" in refused.value.reason
