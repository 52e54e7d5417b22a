"""The documents around citations: their text, and pictures of their pages.

GET /v1/passages/{id}?neighbours=10   {"passages": [{"id", "text", "file", "page", "heading", "link"}, ...]}, in order
GET /v1/pictures/{id}                 the page of a PDF as a PNG, with the passage marked
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from evoseek.documents.page_picture import picture_of_page
from evoseek.errors import DataError, ToolError
from evoseek.search.sources import FileOrigin
from evoseek.serve.chat_api import linked
from evoseek.serve.mcp import Library
from evoseek.types import Passage

MAX_NEIGHBOURS = 50  # on each side
Seen = Callable[[Request], tuple[Library | None, Mapping[str, FileOrigin]]]
"""Returns the library (None: nothing can be searched) and the files that a request may see."""


def document_routes(seen: Seen) -> list[BaseRoute]:
    """Return the routes over what each request may see."""

    async def around(request: Request) -> Response:
        number = request.query_params.get("neighbours", "10")
        count = min(int(number[:9]), MAX_NEIGHBOURS) if number.isdecimal() else 0
        passages = await _around(request, seen, count)
        shown = [{"id": passage.id, "text": passage.own_text, **passage.place} for passage in passages]
        return JSONResponse({"passages": linked(shown, seen(request)[1])})

    async def picture(request: Request) -> Response:
        (passage,) = await _around(request, seen, 0)
        origin = seen(request)[1].get(passage.file or "")
        try:
            png = await to_thread(_drawn, origin, passage)
        except (DataError, ToolError) as error:
            raise HTTPException(404, str(error)) from error
        return Response(png, media_type="image/png", headers={"Cache-Control": "no-store"})

    return [Route("/v1/passages/{id:path}", around), Route("/v1/pictures/{id:path}", picture)]


async def _around(request: Request, seen: Seen, neighbours: int) -> list[Passage]:
    """Return the passage of a request between its neighbours. Raises HTTPException."""
    library = seen(request)[0]
    if library is None:
        raise HTTPException(404, "There is no index here whose passages can be shown.")
    try:
        return await to_thread(library.around, request.path_params["id"], neighbours)
    except DataError as error:
        raise HTTPException(404, str(error)) from error


def _drawn(origin: FileOrigin | None, passage: Passage) -> bytes:
    """Return the picture of a passage's page. Raises as `picture_of_page`."""
    if origin is None or passage.page is None or origin.path.suffix.lower() != ".pdf":
        raise DataError("The passage is on no page of a PDF.")
    if (file := origin.opened()) is None:
        raise DataError("The file was changed or moved since it was indexed.")
    with file:
        return picture_of_page(file.read(), passage.page, passage.own_text)
