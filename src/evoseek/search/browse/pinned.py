"""Connections to checked addresses: a name is resolved once, and the connection goes to exactly the address that was
checked.

Between a check and a later resolution by the HTTP library a name server could change its answer (DNS rebinding). So
both are done here, below that library, which still knows the host by its name, for the Host header and for TLS.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

import httpcore2
from httpcore2 import AnyIOBackend

from evoseek.errors import PageError
from evoseek.search.browse.address import AddressRules, as_address, is_public

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to IP addresses, best first. Raises socket.gaierror."""

_CONNECT_S = 5.0  # for one address
_TRIED = 3  # addresses of a host
_NO_SUCH_HOST = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that the system's resolver gives. Raises socket.gaierror."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """The network backend of httpcore2. Raises PageError for a host if any of its addresses is not public, or is
    denied."""

    def __init__(
        self, rules: AddressRules, resolver: Resolver = resolve, inner: httpcore2.AsyncNetworkBackend | None = None
    ) -> None:
        self._rules, self._resolver = rules, resolver
        self._inner: httpcore2.AsyncNetworkBackend = inner or AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of the host that takes one."""
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in (await self._checked(host, port))[:_TRIED]:
            try:
                return await self._inner.connect_tcp(address, port, _CONNECT_S, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """As the inner backend does."""
        await self._inner.sleep(seconds)

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = [host] if as_address(host) else await self._resolver(host, port)
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_HOST:
                raise PageError(f"There is no host {host}. Choose another page.") from error
            raise httpcore2.ConnectError(f"the name {host} could not be looked up: {error.strerror}") from error
        if not self._rules.is_excepted(host, port) and not all(map(is_public, addresses)):
            raise PageError(f"The host {host} is not a public one, and is not opened. Choose another page.")
        if any(map(self._rules.is_denied, addresses)):
            raise PageError(f"The host {host} is at an address that may not be opened. Choose another page.")
        return addresses
