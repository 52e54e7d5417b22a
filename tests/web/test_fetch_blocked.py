"""Challenges are told from pages."""

import pytest

from evoseek.web.fetch import MAX_WORDS, blocked_reason

CLOUDFLARE = b"<title>Just a moment...</title><script>window._cf_chl_opt={cvId:'3'}</script>"
DATADOME = b"<script>var dd={'host':'geo.captcha-delivery.com'}</script>Please enable JS and disable any ad blocker"


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (403, {}, CLOUDFLARE, "Cloudflare"),
        (503, {"cf-mitigated": "challenge"}, b"", "Cloudflare"),
        (403, {}, DATADOME, "DataDome"),
        (405, {"x-amzn-waf-action": "captcha"}, b"", "AWS"),
        (403, {}, b'<div id="px-captcha"></div>', "HUMAN"),
        (403, {}, b"<h1>Access Denied</h1> https://errors.edgesuite.net/18.a", "Akamai"),
        (429, {}, b"Our systems have detected unusual traffic from your computer network.", "automated"),
        (403, {}, b"<p>Please verify you are a human</p>", "captcha"),
        (200, {}, b"Please verify that you are not a robot.", "captcha"),
        (200, {}, b"Please complete the captcha to continue", "captcha"),
        (200, {}, b"Enable JavaScript and cookies to continue", "JavaScript"),
        (200, {}, b"Checking your browser before accessing example.org", "automated"),
        (200, {}, CLOUDFLARE, "Cloudflare"),
    ],
)
def test_challenges(status, headers, body, said):
    text = body.decode() if status == 200 else None
    assert said in blocked_reason(status, headers, body, text)


ARTICLE = "A captcha asks you to verify you are human . It says: complete the captcha . " * 12


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (403, b"<h1>403 Forbidden</h1>nginx", None),
        (503, b"Service Unavailable", None),
        (429, b"Too Many Requests", None),
        (404, CLOUDFLARE, None),
        (200, ARTICLE.encode(), ARTICLE),
        (200, b"<code>_cf_chl_opt</code>" + ARTICLE.encode(), ARTICLE),
        (200, b"<noscript>x</noscript>", "You need to enable JavaScript to run this app."),
        (200, b'<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>', "Kalo is a town."),
        (200, b'<div class="g-recaptcha"></div>', "Contact us. Name. Message."),
        (200, b"", "CAPTCHA: a test to tell computers and humans apart."),
    ],
)
def test_pages_and_plain_refusals_are_none(status, body, text):
    assert blocked_reason(status, {}, body, text) is None


def test_how_long_a_challenge_may_be():
    words = ["Please", "verify", "you", "are", "human"] + ["word"] * (MAX_WORDS - 5)
    assert blocked_reason(200, {}, b"", " ".join(words))
    assert blocked_reason(200, {}, b"", " ".join([*words, "more"])) is None
