"""An HTTP response, before it is put on the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass

import h11


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body, and headers besides the body's type and length."""

    status: int
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> Response:
        """A value as JSON."""
        return cls(status, json.dumps(value).encode(), "application/json")

    def head(self, *more: tuple[str, str], too_long: int = 0) -> h11.Response:
        """What it begins with; `too_long` is by how much the length is wrong."""
        length = str(len(self.body) + too_long)
        headers = [("content-type", self.content_type), ("content-length", length), *self.headers, *more]
        return h11.Response(status_code=self.status, headers=headers)
