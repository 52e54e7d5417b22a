"""Pages that a site shows to presumed robots instead of the requested page."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_WORDS = 120
"""Maximum number of words of such a page: a longer page is about such pages."""

_HEAD = 64 * 1024
_STATUSES = frozenset({401, 403, 405, 406, 429, 503})  # what such pages come with, 200 apart

_HEADERS = {  # name: what its value begins with, and who sends it
    "cf-mitigated": ("challenge", "Cloudflare asks for a challenge"),
    "x-amzn-waf-action": ("", "AWS WAF asks for a challenge"),
    "x-datadome": ("protected", "DataDome asks for a challenge"),
}
_MARKS = {  # in the source of a challenge, and in no page that merely is behind such a service
    b"_cf_chl_opt": "Cloudflare asks for a challenge",
    b"captcha-delivery.com": "DataDome asks for a challenge",
    b"px-captcha": "HUMAN asks for a captcha",
    b"_incapsula_resource": "Imperva asks for a challenge",
    b"errors.edgesuite.net": "Akamai denies access",
    b"awswafintegration": "AWS WAF asks for a challenge",
}
_WORDS = re.compile(
    r"(?P<captcha>(verify|confirm|prove)( that)? you( are|'re|’re)( a| not a)? (human|robot)|are you a (human|robot)"
    r"|i'?m not a robot|(complete|solve|enter) the (captcha|security check)|captcha (is )?required)"
    r"|(?P<script>(enable|turn on) (javascript|js) (and (cookies|disable)|to (continue|proceed|verify)))"
    r"|(?P<traffic>unusual (traffic|activity) from your|automated (access|requests|queries) (from|to)"
    r"|checking (if the site connection is secure|your browser)|access to this page has been denied)",
    re.IGNORECASE,
)
_REASONS = {
    "captcha": "it asks for a captcha",
    "script": "it asks to enable JavaScript",
    "traffic": "it blocks automated access",
}


def blocked_reason(status: int, headers: Mapping[str, str], body: bytes, text: str | None = None) -> str | None:
    """Why a response is a challenge instead of a page; None if it is not.

    `headers` have names in small letters. `text` is what the page shows, where it was extracted; without it only a
    response whose status refuses the page is judged. What decides: a header by which a service says so; in the first
    64 KiB of a short page, a mark of such a service or the words of a challenge. An application that shows nothing
    without JavaScript ("You need to enable JavaScript to run this app") is no challenge: every visitor sees this text.
    """
    if text is None and status not in _STATUSES:
        return None
    for name, (value, reason) in _HEADERS.items():
        if name in headers and headers[name].lower().startswith(value):
            return reason
    if text is not None and len(text.split(None, MAX_WORDS)) > MAX_WORDS:
        return None
    source = body[:_HEAD].lower()
    if reason := next((reason for mark, reason in _MARKS.items() if mark in source), None):
        return reason
    found = _WORDS.search(source.decode(errors="replace") if text is None else text[:_HEAD])
    return _REASONS[found.lastgroup or ""] if found else None
