"""Data on a page: JSON that cannot end the script it stands in, and packed parts of it.

All that is not ASCII is escaped, and so are `<`, `>` and `&`. A packed part is JSON, compressed by gzip and written in
base64, so it holds nothing but letters, digits, `+`, `/` and `=`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def script_json(value: object) -> str:
    """A value as JSON for a script element. Numbers that are not finite become null."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPED)


def packed(value: object) -> str:
    """A value as compressed JSON in base64; equal values give equal texts."""
    return base64.b64encode(gzip.compress(script_json(value).encode("ascii"), 6, mtime=0)).decode("ascii")


def source_hash(text: str) -> str:
    """A script or style as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(one) for one in cast("Sequence[object]", value)]
    return value
