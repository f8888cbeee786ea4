"""How to reach an origin: directly, or through a proxy that the environment names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from mainspring.http_client.errors import InvalidRequest
from mainspring.http_client.request import Origin, basic_auth, split_url


@dataclass(frozen=True, slots=True)
class Route:
    """`connect_to` is opened; `tunnel`: then CONNECT to the origin; `absolute`: requests name the whole URL."""

    origin: Origin
    connect_to: tuple[str, int]
    tunnel: bool = False
    absolute: bool = False
    proxy_auth: str | None = None


def route_to(origin: Origin, *, env: Mapping[str, str] | None = None) -> Route:
    """Return the route to an origin; with `env`, by its `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`."""
    proxy = _proxy(origin, env) if env else None
    if proxy is None:
        return Route(origin, (origin.name, origin.port))
    via, parts = split_url(proxy if "://" in proxy else f"http://{proxy}")
    if via.scheme != "http":
        raise InvalidRequest(f"the proxy {via.scheme}://{via.host} is not supported: only http:// proxies are")
    secure = origin.scheme == "https"
    return Route(origin, (via.name, via.port), tunnel=secure, absolute=not secure, proxy_auth=basic_auth(parts))


def _proxy(origin: Origin, env: Mapping[str, str]) -> str | None:
    def setting(name: str) -> str:
        # A CGI script gets the request's `Proxy` header as HTTP_PROXY.
        ignored = name == "http_proxy" and "REQUEST_METHOD" in env
        return env.get(name) or ("" if ignored else env.get(name.upper(), ""))

    found = setting(f"{origin.scheme}_proxy") or setting("all_proxy")
    if not found or _bypassed(origin, setting("no_proxy")):
        return None
    if found.partition("://")[0].startswith("socks"):
        raise InvalidRequest(
            "SOCKS proxies are not supported: set HTTP_PROXY and HTTPS_PROXY, or add the host to NO_PROXY"
        )
    return found


def _bypassed(origin: Origin, no_proxy: str) -> bool:
    name = origin.name.lower()
    for entry in no_proxy.lower().replace(" ", ",").split(","):
        if entry == "*":
            return True
        if "/" in entry:
            if _in_network(name, entry):
                return True
            continue
        host = entry.removesuffix(f":{origin.port}").strip("[]").lstrip(".")
        if host and (name == host or name.endswith(f".{host}")):
            return True
    return False


def _in_network(name: str, network: str) -> bool:
    import ipaddress  # takes 5 ms to import

    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


@cache
def tls_context(*_: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@cache
def _api_tls(certificate: str, key: str, *_: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


def api_tls() -> ssl.SSLContext:
    """Return the context for the Mainspring API: with the client certificate of the environment, if there is one.

    No other server gets it: tasks and notifications use `default_tls`.
    """
    certificate, key = os.environ.get("MAINSPRING_TLS_CERT"), os.environ.get("MAINSPRING_TLS_KEY")
    if certificate is None or key is None:
        return default_tls()
    return _api_tls(certificate, key, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def tls_for(url: str) -> ssl.SSLContext | None:
    """Return the context for an API at this URL; None for plain HTTP, which needs none."""
    return api_tls() if url.startswith("https:") else None


def default_tls() -> ssl.SSLContext:
    """Return the context for the system's certificates, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.

    Loading takes 20-100 ms, so it is done once, by the first connection that needs it.
    """
    return tls_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
