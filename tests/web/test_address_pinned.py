"""Ten thousand hostile URLs: what is connected to, counted at the backend and at the sockets."""

import asyncio
import ipaddress
import random
import socket
from collections import Counter
from typing import ClassVar

import httpcore2
import pytest
from tests.raising import raises

from evoseek.errors import PageError, ToolError
from evoseek.web import address
from evoseek.web.address import AddressRules, PinnedBackend
from evoseek.web.fetch import SafeFetcher

PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")
INTERNAL = (
    *("127.0.0.1", "127.8.9.10", "10.0.0.5", "172.16.3.4", "172.31.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0"),
    *("100.64.0.1", "100.100.100.200", "198.18.0.1", "224.0.0.251", "255.255.255.255", "192.0.0.192", "168.63.129.16"),
)
INTERNAL_V6 = ("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "2002:7f00:1::1")
CURATED = (
    *(
        "http://127.0.0.1",
        "http://localhost:80/",
        "http://LOCALHOST./",
        "http://[::1]:80/",
        "http://[::]:80/",
        "http://0/",
    ),
    *(
        "http://017700000001",
        "http://0x7f000001",
        "http://2130706433",
        "http://127.1",
        "http://127.0.1",
        "http://①②⑦.⓪.⓪.①",
    ),
    *(
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
    ),
    *(
        "http://[2002:a9fe:a9fe::]/",
        "http://[2001:0:7f00:1:0:0:80ff:fffe]/",
        "http://[fe80::1%25lo]/",
        "http://[fd00:ec2::254]/",
    ),
    *("http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://instance-data/latest"),
    *(
        "http://good.test@127.0.0.1/",
        "http://127.0.0.1\\@good.test/",
        "http://good.test\\@127.0.0.1/",
        "http://good.test#@127.0.0.1/",
    ),
    *(
        "http://good.test%00.127.0.0.1/",
        "http://127.0.0.1%23.good.test/",
        "http://127.0.0.1%2f@good.test/",
        "http:/\\127.0.0.1/",
    ),
    *(
        "http:127.0.0.1/",
        "http:///127.0.0.1/",
        "http://127.0.0.1:80:80/",
        "http://127。0。0。1/",
        "http://127.0.0.1%E3%80%82/",
    ),
    *("file:///etc/passwd", "gopher://127.0.0.1:6379/_INFO", "dict://127.0.0.1:11211/", "unix:///var/run/docker.sock"),
    *(
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "ldap://127.0.0.1/",
        "javascript:fetch('http://127.0.0.1')",
        "//127.0.0.1/",
    ),
    *(
        "http://127.0.0.1.inner.test/",
        "http://rebind.test/",
        "http://both.test/",
        "https://inner.test:443/",
        "http://%6c%6fcalhost/",
    ),
    *(
        "http://ʟocalhost/",
        "http://loc\u00adalhost/",
        "http://127.0.0.1\u200b/",
        "http://127.00.0x0.1/",
        "http://127.0.0.1:８０/",
    ),
    *(
        "http://4294967297/",
        "http://127.0.0.256/",
        "http://1.0x7f000001/",
        "http://10.0.0.5/",
        "http://[::ffff:0:127.0.0.1]/",
    ),
)


def part(rng, value):
    return rng.choice((str(value), hex(value), f"0{value:o}", f"000{value:o}", f"0X{value:X}"))


def spelt(rng, address):
    """An IPv4 address in one of the many ways in which resolvers, browsers or careless checks read it."""
    a, b, c, d = ipaddress.IPv4Address(address).packed
    whole = int(ipaddress.IPv4Address(address))
    text = rng.choice(
        (
            address,
            part(rng, whole),
            ".".join(part(rng, byte) for byte in (a, b, c, d)),
            f"{part(rng, a)}.{part(rng, b << 16 | c << 8 | d)}",
            f"{part(rng, a)}.{part(rng, b)}.{part(rng, c << 8 | d)}",
            f"[::ffff:{address}]",
            f"[::ffff:{whole >> 16:x}:{whole & 0xFFFF:x}]",
            f"[::{address}]",
            f"[64:ff9b::{address}]",
            f"[64:ff9b:1::{address}]",
            f"[2002:{whole >> 16:x}:{whole & 0xFFFF:x}::1]",
            f"[2001:0:{whole >> 16:x}:{whole & 0xFFFF:x}::1]",
            f"[2001::{whole >> 16 ^ 0xFFFF:x}:{whole & 0xFFFF ^ 0xFFFF:x}]",
            f"[fe80::5efe:{address}]",
        )
    )
    twist = rng.randrange(12)
    if twist == 0:
        return "".join(f"%{ord(char):02x}" if rng.random() < 0.5 else char for char in text)
    if twist == 1:
        return "".join(chr(0xFF10 + int(char)) if char.isdecimal() else char for char in text)
    if twist == 2:
        return text.replace(".", rng.choice("。．｡"))
    if twist == 3:
        return text + "." * rng.randint(1, 3)
    return text.upper() if twist == 4 else text


def named(rng):
    name = rng.choice(("rebind", "inner", "both", "six", "localhost", "good"))
    name = f"{rng.choice(('', 'a.', '127.0.0.1.', 'www.good.'))}{name}{rng.choice(('', str(rng.randrange(300))))}.test"
    return rng.choice((name, name.upper(), f"{name}.", "localhost", name.replace("e", "ｅ")))


def hostile_url(number):
    rng = random.Random(f"0/hostile/{number}")
    host = rng.choices(
        (spelt(rng, rng.choice(INTERNAL)), f"[{rng.choice(INTERNAL_V6)}]", named(rng), rng.choice(PUBLIC[:1])),
        (5, 1, 4, 1),
    )[0]
    user = rng.choices(
        ("", "good.test@", "good.test:80@", "u:p@", "good.test%2f@", "good.test\\@"), (12, 1, 1, 1, 1, 1)
    )[0]
    port = rng.choices(("", ":80", ":443", ":22", ":6379", ":０８０", ":0", ":"), (8, 2, 2, 1, 1, 1, 1, 1))[0]
    scheme = rng.choices(("http", "https", "HTTP", "ftp", "gopher", "file"), (10, 4, 1, 1, 1, 1))[0]
    slashes = rng.choices(("://", ":/", ":", ":///", ":\\\\", "://\t", "://[", ":////"), (16, 1, 1, 1, 1, 1, 1, 1))[0]
    tail = rng.choice(
        ("", "/", "/a?b#c", "#@good.test/", "?@good.test", "\\@good.test/", "/..//127.0.0.1/", "/%00\r\nHost: a")
    )
    return f"{scheme}{slashes}{user}{host}{port}{tail}"


class Names:
    """A resolver, as loose as the system's with numbers. What `rebind` is depends on how often it was asked."""

    def __init__(self):
        self.asked = Counter()

    async def __call__(self, host, port):
        self.asked[host] += 1
        try:
            return [socket.inet_ntoa(socket.inet_aton(host))]
        except OSError:
            pass
        if set(host) <= set("0123456789abcdefABCDEF:.xX%"):
            return [host]
        rng = random.Random(f"0/resolver/{host}")
        if "rebind" in host:
            return [PUBLIC[0] if self.asked[host] % 2 else rng.choice(INTERNAL)]
        if "both" in host:
            return rng.sample([*PUBLIC, rng.choice(INTERNAL)], 3)
        if "inner" in host or "localhost" in host or "internal" in host or not host.isascii():
            return [rng.choice(INTERNAL)]
        if "six" in host:
            return [rng.choice(INTERNAL_V6)]
        return list(PUBLIC)


class CountingBackend(httpcore2.AnyIOBackend):
    connected: ClassVar[Counter] = Counter()

    async def connect_tcp(self, host, *args, **settings):
        self.connected[host] += 1
        return await super().connect_tcp(host, *args, **settings)


@pytest.fixture
def sockets(monkeypatch):
    """Addresses that any socket was connected to; none is really."""
    connected = Counter()

    def connect(self, address):
        if self.family == socket.AF_UNIX:
            raise AssertionError(address)
        connected[address[0]] += 1
        raise ConnectionRefusedError(address)

    def getaddrinfo(host, *args, **kwargs):
        raise AssertionError(f"{host} was looked up behind the resolver's back")

    CountingBackend.connected = Counter()
    monkeypatch.setattr(address, "AnyIOBackend", CountingBackend)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return connected


def opener(extractor, names):
    return SafeFetcher(AddressRules(), extractor, attempts=1, interval_s=0, obey_robots=False, resolver=names)


def test_ten_thousand_hostile_urls_reach_no_address_that_is_not_public(extractor, sockets):
    names, outcomes = Names(), Counter()

    async def open_all():
        fetcher = opener(extractor, names)
        for url in (*CURATED, *map(hostile_url, range(10_000))):
            with pytest.raises((PageError, ToolError)) as caught:
                await fetcher.fetch(url)
            outcomes[caught.type] += 1

    asyncio.run(open_all())
    assert set(sockets) == set(PUBLIC)
    assert sockets == CountingBackend.connected
    assert outcomes[ToolError] > 300  # as many came as far as a connection to a public address
    assert sum(count for host, count in names.asked.items() if "rebind" in host) > 50
    assert outcomes[PageError] > 8000


def test_the_connection_trusts_no_earlier_check(sockets):
    async def connect_all():
        backend = PinnedBackend(AddressRules(), Names())
        for number in range(1000):
            rng = random.Random(f"0/unchecked/{number}")
            with raises("web.not_public"):
                await backend.connect_tcp(spelt(rng, rng.choice(INTERNAL)).translate({91: None, 93: None}), 80)

    asyncio.run(connect_all())
    assert not sockets


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(extractor, sockets):
    names = Names()
    fetcher = opener(extractor, names)
    with raises("web.failed"):
        asyncio.run(fetcher.fetch("http://rebind.test/"))
    assert (names.asked["rebind.test"], set(sockets)) == (1, {PUBLIC[0]})
    with raises("web.not_public"):
        asyncio.run(fetcher.fetch("http://rebind.test/"))
    assert set(sockets) == {PUBLIC[0]}


def test_addresses_are_tried_in_turn_and_one_bad_one_forbids_all(sockets):
    async def connect(*addresses):
        async def names(host, port):
            return addresses

        await PinnedBackend(AddressRules(), names).connect_tcp("a.test", 80)

    with pytest.raises(httpcore2.ConnectError):
        asyncio.run(connect("1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"))
    assert list(sockets) == ["1.1.1.1", "1.1.1.2", "1.1.1.3"]
    with raises("web.not_public"):
        asyncio.run(connect("1.1.1.5", "1.1.1.6", "1.1.1.7", "1.1.1.8", "127.0.0.1"))
    with pytest.raises(httpcore2.ConnectError, match="no address"):
        asyncio.run(connect())
    assert len(sockets) == 3


@pytest.mark.parametrize("address", ["1.1.1.2", "::ffff:1.1.1.2", "64:ff9b::101:102"])
@pytest.mark.parametrize("excepted", [(), ("a.test:80",)])
def test_a_denied_address_is_denied_by_every_name(sockets, address, excepted):
    async def names(host, port):
        return ["1.1.1.1", address]

    rules = AddressRules(deny=("bad.test", "1.1.1.2"), allow_private=excepted)
    with raises("web.forbidden_address"):
        asyncio.run(PinnedBackend(rules, names).connect_tcp("a.test", 80))
    assert not sockets


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [(socket.EAI_NONAME, PageError, "no host"), (socket.EAI_AGAIN, httpcore2.ConnectError, "could not be looked up")],
)
def test_a_host_that_there_is_not_differs_from_a_resolver_that_fails(code, error, said):
    async def names(host, port):
        raise socket.gaierror(code, "said the resolver")

    with pytest.raises(error, match=said):
        asyncio.run(PinnedBackend(AddressRules(), names).connect_tcp("a.test", 80))
