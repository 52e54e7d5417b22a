"""The body of a request, as far as it may go."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request


async def read_body(request: Request, most: int, *, remedy: str) -> bytes:
    """The body. Raises HTTPException 413, with the remedy, as soon as it is too large."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise HTTPException(413, f"The body has more than {most:,} bytes. {remedy}")
    except ClientDisconnect as error:
        raise HTTPException(400, "The connection ended within the body.") from error
    return bytes(body)
