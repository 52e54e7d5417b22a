"""Uploads: new files from clients, written into one folder of an index's documents, and read into the index.

    PUT /v1/uploads/{name}   a file's bytes: 201 once it is written
    GET /v1/uploads          {"error": null, "files": [{"file", "state", "passages", "skipped", "warnings"}, ...]}

The index is updated by `evoseek index --update` in a process of its own, soon after the last file came. A file is
`waiting` until then, and `read` or `skipped` after it. No file is replaced.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from typing import IO, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from evoseek.documents.documents import SUFFIXES, is_leftover
from evoseek.errors import ConfigError
from evoseek.search.lexical import LexicalIndex
from evoseek.search.sources import Recorded
from evoseek.storage.files import new_file

MAX_BYTES, MAX_NAME = 100 * 2**20, 200  # of a file, and of its name in UTF-8
MAX_FILES = 5_000  # in the folder
MAX_AT_ONCE = 8
_SPOOLED = 2**20  # bytes that are held in memory
_LIMIT_S, _PAUSE_S, _RETRY_S, _PAUSES = 600, 1, 30, 10
_TOLD = 1_000  # last uploads whose state is kept


class Uploads:
    """A folder that takes files of clients, in the documents of an index, which is updated after each."""

    def __init__(self, folder: Path, index: Path) -> None:
        """Make the folder if it is missing. Raises ConfigError if it is no folder of the index's documents, and
        SearchIndexError if the index does not record its files."""
        self._corpus = Path(Recorded(LexicalIndex.open(index)).sources.corpus)
        self._folder, self._index = folder.resolve(), index
        if not self._folder.is_relative_to(self._corpus) or not self._corpus.is_dir():
            raise ConfigError(
                f"{folder} is no folder of the documents of the index, {self._corpus}. Give --upload that folder or "
                "one in it; or index a folder that contains it."
            )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"The folder {folder} cannot be made: {error.strerror}. Give --upload another one."
            ) from error
        self._files = OrderedDict[str, Mapping[str, object]]()
        self._under_way, self._error = 0, None
        self._updating: asyncio.Task[None] | None = None
        self.described = {"max_bytes": MAX_BYTES, "types": SUFFIXES}

    async def tell(self, request: Request) -> Response:
        """Reply with the state of the last uploads."""
        return JSONResponse({"error": self._error, "files": [*self._files.values()]})

    async def take(self, request: Request) -> Response:
        """Take a file. Raises HTTPException for one that is not taken."""
        name: str = request.path_params["name"]
        await asyncio.to_thread(self._check, name, request.headers.get("content-length", ""))
        if self._under_way >= MAX_AT_ONCE:
            raise HTTPException(429, f"{MAX_AT_ONCE} files are under way. Send this one again.", {"Retry-After": "1"})
        self._under_way += 1
        try:
            async with asyncio.timeout(_LIMIT_S):
                with SpooledTemporaryFile(_SPOOLED) as received:
                    await _receive(request, received)
                    await asyncio.to_thread(self._store, name, received)
        except TimeoutError as error:
            raise HTTPException(408, f"The file took more than {_LIMIT_S} seconds. Send a smaller one.") from error
        except ClientDisconnect as error:
            raise HTTPException(400, "The file is not whole.") from error
        finally:
            self._under_way -= 1
        file = (self._folder / name).relative_to(self._corpus).as_posix()
        self._keep({"file": file, "state": "waiting"})
        if self._updating is None or self._updating.done():
            self._updating = asyncio.create_task(self._update())
        return JSONResponse({"file": file}, 201)

    def _check(self, name: str, length: str) -> None:
        """Raise HTTPException for a file that is not taken."""
        if Path(name).name != name or name.startswith(".") or is_leftover(name) or not name.isprintable():
            raise HTTPException(400, f"{name[:100]!r} is no name of a document. Expected one without folders.")
        if len(name.encode("utf-8", "replace")) > MAX_NAME:
            raise HTTPException(400, f"The name has more than {MAX_NAME} bytes. Give a shorter one.")
        if (suffix := Path(name).suffix.lower()) not in SUFFIXES:
            raise HTTPException(
                415, f"Files of type {suffix or '(none)'} are not read. Expected {', '.join(SUFFIXES)}."
            )
        if length.isdecimal() and int(length) > MAX_BYTES:
            raise _too_large()
        if sum(1 for _ in self._folder.iterdir()) >= MAX_FILES:
            raise HTTPException(507, f"The folder has {MAX_FILES:,} files already. Remove some where the server runs.")

    def _store(self, name: str, received: IO[bytes]) -> None:
        received.seek(0)
        try:
            with new_file(self._folder / name) as file:
                shutil.copyfileobj(received, file)
        except FileExistsError as error:
            raise HTTPException(409, f"There is a file {name} already. Send this one by another name.") from error
        except OSError as error:
            raise HTTPException(507, f"The file cannot be written: {error.strerror or error}.") from error

    def _keep(self, file: Mapping[str, object]) -> None:
        self._files[str(file["file"])] = file
        while len(self._files) > _TOLD:
            self._files.popitem(last=False)

    async def _update(self) -> None:
        """Update the index until no file waits; after a failure try again later."""
        while any(file["state"] == "waiting" for file in self._files.values()):
            await asyncio.sleep(_RETRY_S if self._error else _PAUSE_S)
            for _ in range(_PAUSES):  # so that files sent together are read together
                if self._under_way:
                    await asyncio.sleep(_PAUSE_S)
            waiting = [name for name, file in self._files.items() if file["state"] == "waiting"]
            report: Mapping[str, Any]
            try:
                report = await self._updated()
            except (OSError, ValueError) as error:  # no room for the report, or no process
                report = {"error": f"the index cannot be updated: {error}"}
            self._error = report.get("error")
            found = {file["file"]: file for file in report.get("files", ())}
            for name in waiting if self._error is None else ():
                self._keep(_reported(found.get(name, {"file": name, "skipped_for": [{"reason": "it is gone"}]})))

    async def _updated(self) -> Mapping[str, Any]:
        """Return the report of an update, or its `error`."""
        with TemporaryDirectory(prefix="evoseek-upload-") as folder:
            report = Path(folder, "report.json")
            command = ["index", str(self._corpus), str(self._index), "--update", "--report", str(report)]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "evoseek", *command),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                errors = (await process.communicate())[1]
            except asyncio.CancelledError:
                process.kill()
                raise
            if process.returncode:
                return {"error": errors.decode("utf-8", "replace").strip()[-500:] or f"ended: {process.returncode}"}
            return json.loads(report.read_bytes())


async def _receive(request: Request, file: IO[bytes]) -> None:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BYTES:
            raise _too_large()
        file.write(chunk)


def _too_large() -> HTTPException:
    return HTTPException(413, f"The file has more than {MAX_BYTES:,} bytes. Divide it.")


def _reported(file: Mapping[str, Any]) -> Mapping[str, object]:
    """Return a file's part of the report of an update, for clients."""
    return {
        "file": file["file"],
        "state": "read" if file.get("documents") else "skipped",
        "passages": file.get("passages", 0),
        "skipped": [one["reason"] for one in file.get("skipped_for", ())][:5],
        "warnings": file.get("warnings", [])[:5],
    }
