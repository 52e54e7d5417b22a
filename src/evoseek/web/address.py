"""Checks of web addresses: the shape of a URL, and the network address behind its host.

A name is resolved once, and the connection goes to exactly the checked address: between a check and a later resolution
by the HTTP library a name server could change its answer (DNS rebinding). So both happen here, below that library,
which still knows the host's name, for the Host header and for TLS.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore2
import httpx2
from httpcore2 import AnyIOBackend

from evoseek.errors import ConfigError, PageError

MAX_URL = 2048
"""Maximum number of characters of a URL."""

_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,62})\.)*[a-z0-9_][a-z0-9_-]{0,62}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a last label that a resolver reads as (a part of) an IPv4 address
_DEFAULT_PORT = {"http": 80, "https": 443}

# IANA's special-purpose registry (RFC 6890) as of 2025, in full: `ipaddress` differs between Pythons. 168.63.129.16
# only looks public: it is the metadata service of a cloud.
_CLOSED_V4 = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
        ),
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")  # all addresses ever assigned for routing
_CLOSED_V6 = tuple(
    # protocol assignments with Teredo, documentation (twice), 6to4, AS112
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20", "2002::/16", "2620:4f:8000::/48"))
)
_CARRIES_V4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))  # IPv4-mapped, and NAT64 (RFC 6052)


Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to IP addresses, best first. Raises socket.gaierror."""

_CONNECT_S = 5.0  # for one address
_TRIED = 3  # addresses tried of a host
_NO_SUCH_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The addresses that may be opened, in addition to the built-in restrictions.

    `allow` and `deny` are host names, each with all names below it; an empty `allow` allows every host, and `deny`
    takes precedence. An IP address in `deny` also denies every name that resolves to it. `allow_private` holds exact
    host:port pairs that may have a non-public address (a server on this machine); other hosts are opened only on the
    ports 80 and 443. An IPv6 host stands in brackets.

    Raises ConfigError for an entry of another form.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allow_private: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for entry in (*self.allow, *self.deny):
            if not (_NAME.fullmatch(entry) or as_address(entry)):
                raise ConfigError(
                    f"Got {entry!r} in a list of hosts. Give only a host, in lower case, such as example.org; it "
                    "includes names below it."
                )
        for entry in self.allow_private:
            host, _, port = entry.rpartition(":")
            address = as_address(host.strip("[]"))
            usual = f"[{address}]" if isinstance(address, IPv6Address) else str(address or host)
            if host != usual or not (address or _NAME.fullmatch(host)) or not _is_port(port):
                raise ConfigError(
                    f"Got {entry!r} in allow_private. Give host:port, such as 127.0.0.1:8000 or [::1]:8000 (in the "
                    "shortest spelling), with a port from 1 to 65535."
                )

    def is_denied(self, address: str) -> bool:
        """Return whether an IP address is in `deny`; call it when the connection is made."""
        return _is_among(address, self.deny)

    def is_excepted(self, host: str, port: int) -> bool:
        return _authority(host, port) in self.allow_private


def check_url(url: str, rules: AddressRules, base: httpx2.URL | None = None) -> httpx2.URL:
    """Return the URL in canonical spelling, without a fragment, if it may be opened; `base` is the URL of the page that
    redirects to it.

    A host name may still resolve to an address that is not public, or denied: `is_public` and `AddressRules.is_denied`
    are checked when the connection is made. A numeric host must have the usual spelling (RFC 3986, 3.2.2: four decimal
    numbers, or IPv6 in brackets), since resolvers read 2130706433, 0x7f.1 and 127.1 as 127.0.0.1. Raises PageError.
    """
    try:
        if len(url) > MAX_URL:
            raise PageError(f"The address {url[:80]!r}... has more than {MAX_URL} characters. Use a shorter one.")
        parsed = (base.join(url.strip()) if base is not None else httpx2.URL(url.strip())).copy_with(fragment=None)
        host, port = parsed.raw_host.decode().removesuffix("."), port_of(parsed)
        has_user = bool(parsed.userinfo)
    except (httpx2.InvalidURL, ValueError) as error:  # ValueError: lone surrogates, unmatched brackets
        raise _refused(url, "it is not well formed") from error
    if parsed.scheme not in _DEFAULT_PORT:
        raise _refused(url, "only http and https are opened")
    if has_user:
        raise _refused(url, "it names a user")
    excepted = rules.is_excepted(host, port)
    _check_host(url, host, excepted)
    if not excepted and port not in _DEFAULT_PORT.values():
        raise _refused(url, f"port {port} is not opened")
    if _is_among(host, rules.deny) or (rules.allow and not _is_among(host, rules.allow)):
        raise _refused(url, "its host is not among those that may be opened")
    return parsed.copy_with(host=str(as_address(host) or host))


def port_of(url: httpx2.URL) -> int:
    """Return the port, written or not."""
    return url.port if url.port is not None else _DEFAULT_PORT.get(url.scheme, 0)


def origin_of(url: httpx2.URL) -> str:
    """Return scheme, host and port (RFC 6454), the scope of a robots.txt."""
    return f"{url.scheme}://{_authority(url.raw_host.decode(), port_of(url))}"


def is_public(address: str) -> bool:
    """Return whether an IP address is reachable from the whole Internet and leads nowhere else.

    An address that embeds an IPv4 address is as public as the embedded one. 6to4 and Teredo addresses are never public.
    """
    parsed = as_address(address)
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _CLOSED_V4)
    if parsed is None:
        return False
    if any(parsed in network for network in _CARRIES_V4):
        return is_public(str(IPv4Address(parsed.packed[-4:])))
    return parsed in _UNICAST_V6 and not any(parsed in network for network in _CLOSED_V6)


def _check_host(url: str, host: str, excepted: bool) -> None:
    if as_address(host) is not None:
        if not excepted and not is_public(host):
            raise _refused(url, "its host is not a public one")
        return
    *above, last = host.split(".")
    if not _NAME.fullmatch(host) or _NUMBER.fullmatch(last):
        raise _refused(url, "its host is neither a name nor an IP address in the usual spelling")
    if not above and not excepted:
        raise _refused(url, "its host is not a public one")


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address of a host in the usual spelling; None for every other host."""
    try:
        return None if "%" in host else ip_address(host)  # an address with a zone belongs to one network
    except ValueError:
        return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and str(int(text)) == text and 0 < int(text) < 2**16


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_among(host: str, entries: tuple[str, ...]) -> bool:
    if address := _reached(host):
        return any(address == _reached(entry) for entry in entries)
    return any(host == entry or host.endswith(f".{entry}") for entry in entries)


def _reached(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address of a host in any spelling; the IPv4 address, if it carries one."""
    address = as_address(host)
    is_carrier = isinstance(address, IPv6Address) and any(address in network for network in _CARRIES_V4)
    return IPv4Address(address.packed[-4:]) if address and is_carrier else address


def _refused(url: str, why: str) -> PageError:
    shown = url if len(url) <= 200 else f"{url[:200]}..."
    return PageError(f"The address {shown!r} is not opened: {why}. Choose another page.", code="web.address")


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses from the system's resolver. Raises socket.gaierror."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """The network backend of httpcore2. Raises PageError for a host with any address that is not public, or denied."""

    def __init__(self, rules: AddressRules, resolver: Resolver = resolve) -> None:
        self._rules, self._resolver, self._inner = rules, resolver, AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in (await self._checked(host, port))[:_TRIED]:
            try:
                return await self._inner.connect_tcp(address, port, _CONNECT_S, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = [host] if as_address(host) else await self._resolver(host, port)
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_HOST:
                raise PageError(f"There is no host {host}. Choose another page.") from error
            raise httpcore2.ConnectError(f"the name {host} could not be looked up: {error.strerror}") from error
        if not self._rules.is_excepted(host, port) and not all(map(is_public, addresses)):
            raise PageError(
                f"The host {host} is not a public one, and is not opened. Choose another page.", code="web.not_public"
            )
        if any(map(self._rules.is_denied, addresses)):
            raise PageError(
                f"The host {host} is at an address that may not be opened. Choose another page.",
                code="web.forbidden_address",
            )
        return addresses
