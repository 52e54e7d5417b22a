"""Which URLs and addresses may be opened."""

import pytest
from tests.raising import raises

from evoseek.errors import ConfigError, PageError
from evoseek.web.address import MAX_URL, AddressRules, check_url, is_public, origin_of

RULES = AddressRules()


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.19.0.1"),
        *("198.51.100.7", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "::7f00:1", "fe80::1", "fe80::1%2", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "100::1"),
        *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::808:808"),
        *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1"),
        *("2001:4860:4860::8888%eth0", "localhost", "", "127.1", "4000::1"),
    ],
)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1"),
        *("2001:4860:4860::8888", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "223.255.255.255"),
    ],
)
def test_addresses_that_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("https://Example.ORG/a%20b?q=1#part", "https://example.org/a%20b?q=1"),
        ("  http://example.org.:80/a b ", "http://example.org/a%20b"),
        ("HTTP://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2001:4860:4860:0::8888]/", "http://[2001:4860:4860::8888]/"),
        ("http://xn--0.example/", "http://xn--0.example/"),
        ("http://a_b.example.co.uk", "http://a_b.example.co.uk"),
        ("http://123.example.org/", "http://123.example.org/"),
    ],
)
def test_a_url_gets_its_one_spelling(url, checked):
    assert str(check_url(url, RULES)) == checked


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.org/a",
            "/a",
            "//example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
        ),
        *("gopher://example.org/", "data:text/html,x", "http://", "http:///a", "http://?", "https:example.org"),
        *(
            "http://u@example.org/",
            "http://u:p@example.org/",
            "http://example.org\\@127.0.0.1/",
            "http://:p@example.org",
        ),
        *("http://example.org:22/", "http://example.org:0/", "http://example.org:99999/", "http://example.org:x/"),
        *("http://example.org:-80/", "http://example.org:" + "9" * 5000, "http://[::1/", "http://[example.org]/"),
        *("http://127.0.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/"),
        *("http://127.1/", "http://127.0.1/", "http://0/", "http://00/", "http://127.0.0.1./", "http://127.0.0.1../"),
        *(
            "http://%31%32%37.0.0.1/",
            "http://127.0.0.%31/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http://①②⑦.⓪.⓪.①/",
        ),
        *(
            "http://127.0.0.0x1/",
            "http://example.0x7f/",
            "http://127.0.0.08/",
            "http://8.8.8.008/",
            "http://134744072/",
        ),
        *("http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1%25eth0]/"),
        *("http://[2001:4860:4860::8888%25eth0]/", "http://localhost/", "http://intranet/", "http://exam ple.org/"),
        *("http://example.org\x00.evil/", "http://exa\nmple.org/", "http://example..org/", "http://.example.org/"),
        *("http://-a.example/", "http://\ud800.example/", "http://example.org/\ud800", "http://" + "a" * 64 + ".org/"),
        *("http://" + "a." * 127 + "org/", "http://example.org/" + "a" * MAX_URL, "http://a\u200b.example/x\u2028"),
    ],
)
def test_what_is_not_opened(url):
    with pytest.raises(PageError, match=r"[Cc]hoose another|Use a shorter"):
        check_url(url, RULES)


def test_a_redirect_is_relative_to_its_page_and_checked_as_any_other():
    base = check_url("https://example.org/a/b?c", RULES)
    assert str(check_url("../d", RULES, base)) == "https://example.org/d"
    assert str(check_url("//other.example/x", RULES, base)) == "https://other.example/x"
    for target in (
        "//127.0.0.1/",
        "http://[::1]/",
        "file:///etc/passwd",
        "//u@example.org/",
        "https://example.org:8443/",
    ):
        with raises("web.address"):
            check_url(target, RULES, base)


def test_hosts_can_be_allowed_and_denied_with_all_below_them():
    rules = AddressRules(allow=("example.org", "other.example"), deny=("bad.example.org", "8.8.8.8"))
    for url in ("http://example.org", "http://a.b.example.org", "http://OTHER.example./"):
        check_url(url, rules)
    eight = ("http://[::ffff:8.8.8.8]", "http://[::ffff:808:808]", "http://[64:ff9b::8.8.8.8]")
    rules_v6 = AddressRules(deny=("8.8.8.8", "2606:4700:0::1111"))
    for url in (*eight, "http://8.8.8.8", "http://[2606:4700::1111]", "http://[2606:4700:0:0:0:0:0:1111]"):
        with raises("web.address", match="not among those"):
            check_url(url, rules_v6)
    check_url("http://[2606:4700::1112]", rules_v6)
    for url in ("http://badexample.org", "http://bad.example.org", "http://x.bad.example.org.", "http://8.8.8.8/"):
        with raises("web.address", match="not among those"):
            check_url(url, rules)


def test_a_private_server_is_opened_by_its_exact_name_and_port_alone():
    rules = AddressRules(allow_private=("127.0.0.1:8000", "[::1]:8000", "localhost:81"))
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost:81"):
        assert origin_of(check_url(f"http://{host}/a", rules)) == f"http://{host}"
    for host in ("127.0.0.1", "127.0.0.1:8001", "127.0.0.2:8000", "127.1:8000", "[::1]", "localhost", "localhost:8000"):
        with raises("web.address"):
            check_url(f"http://{host}/a", rules)


@pytest.mark.parametrize(
    "settings",
    [{"deny": ("https://example.org",)}, {"allow": ("Example.org",)}, {"deny": (".org",)}]
    + [
        {"allow_private": (entry,)}
        for entry in ("127.0.0.1", "*:80", "127.0.0.1:x", ":80", "127.0.0.1:99999", "127.0.0.1:080x")
    ]
    + [
        {"allow_private": (entry,)}
        for entry in ("::1:80", "[0:0:0:0:0:0:0:1]:80", "127.0.0.1:0", "127.0.0.1:00080", "a:08")
    ],
)
def test_an_entry_that_would_match_nothing_is_refused(settings):
    with pytest.raises(ConfigError, match="Give"):
        AddressRules(**settings)
