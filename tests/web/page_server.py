"""A web server on the loopback that says what it is told to, byte for byte."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field


def response(body=b"", status=200, kind="text/html; charset=utf-8", **headers):
    body = body.encode() if isinstance(body, str) else body
    fields = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(to, status=302):
    return response(status=status, Location=to)


@dataclass
class PageServer:
    """`routes` maps paths to bytes, to lists of these (one a request, the last for ever) or to async functions of the
    writer. `received` has path, request's head and time of each; `most` how many were served at once."""

    routes: dict
    received: list = field(default_factory=list)
    most: int = 0
    current: int = 0

    async def __aenter__(self):
        self.asked = Counter()
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.at = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    def url(self, path):
        return f"http://{self.at}{path}"

    def paths(self):
        return [path for path, *_ in self.received]

    async def serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.received.append((path, head, time.monotonic()))
            self.current += 1
            self.most = max(self.most, self.current)
            route = self.routes.get(path, response("gone", 404))
            if isinstance(route, list):
                route = route[min(self.asked[path], len(route) - 1)]
            self.asked[path] += 1
            await (route(writer) if callable(route) else self.say(writer, route))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.current -= 1
            writer.close()

    async def say(self, writer, data):
        writer.write(data)
        await writer.drain()
