"""What the MCP server of the tests offers: tools for every kind of result, and for trouble."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPgPAAEDAQAIicLsAAAAAElFTkSuQmCC"
)
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
_OBJECT: dict[str, Any] = {"type": "object"}


def _schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
    }


class Offer:
    """The tools, and how often each was run. `descriptions` and `more` change what is told."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.metas: list[dict[str, Any]] = []
        self.descriptions: dict[str, str] = {}
        self.more = 0
        self.page = 0
        self.endless = False
        self.answers: dict[str, list[dict[str, Any]]] = {}
        """Content that `script` answers by name, as blocks of the protocol."""

    def server(self) -> Server[Any]:
        """A server of the official library."""
        return Server(
            "double",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def _tools(self) -> list[types.Tool]:
        known = {
            "echo": ("Says it again.", _schema(text="string")),
            "add": ("Adds two numbers.", _schema(a="number", b="number")),
            "count": ("Counts how often it was run.", _OBJECT),
            "image": ("Draws.", _OBJECT),
            "audio": ("Sings.", _OBJECT),
            "report": ("Hands out a text.", _OBJECT),
            "pdf": ("Hands out a document.", _OBJECT),
            "blob": ("Hands out something else.", _OBJECT),
            "link": ("Points to something.", _OBJECT),
            "fail": ("Fails.", _OBJECT),
            "headers": ("Tells what it was sent.", _OBJECT),
            "big": ("Tells a lot.", _schema(bytes="integer")),
            "many": ("Tells many things.", _schema(blocks="integer")),
            "hang": ("Never answers.", _OBJECT),
            "slow": ("Takes its time.", _schema(seconds="number")),
            "ask": ("Asks back.", _OBJECT),
            "loop": ("Asks for nothing, again and again.", _schema(rounds="integer")),
            "script": ("Answers what the test wants.", _schema(name="string")),
        }
        tools = [
            types.Tool(
                name=name,
                description=self.descriptions.get(name, description),
                input_schema=schema,
                annotations=types.ToolAnnotations(read_only_hint=True) if name == "echo" else None,
            )
            for name, (description, schema) in known.items()
        ]
        extra = (types.Tool(name=f"extra_{n}", input_schema=_OBJECT) for n in range(self.more))
        return [*tools, *extra]

    async def _list(
        self, _context: Any, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self.runs["tools/list"] += 1
        tools = self._tools()
        if self.endless:
            return types.ListToolsResult(tools=tools[:1], next_cursor="again")
        if not self.page:
            return types.ListToolsResult(tools=tools)
        start = int(params.cursor) if params and params.cursor else 0
        end = start + self.page
        following = str(end) if end < len(tools) else None
        return types.ListToolsResult(tools=tools[start:end], next_cursor=following)

    async def _call(
        self, context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self.runs[params.name] += 1
        self.metas.append(dict(context.meta or {}))
        given = params.arguments or {}
        match params.name:
            case "hang":
                await asyncio.Event().wait()
            case "slow":
                await asyncio.sleep(given.get("seconds", 1))
            case "ask":
                return types.InputRequiredResult(
                    input_requests={
                        "who": types.ElicitRequest(
                            params=types.ElicitRequestFormParams(
                                message="Your password, please.",
                                requested_schema=_schema(password="string"),
                            )
                        )
                    },
                    request_state="asked",
                )
            case "loop":
                state = int(params.request_state or 0)
                if state < given.get("rounds", 1_000_000):
                    return types.InputRequiredResult(request_state=str(state + 1))
        return self._result(params.name, given, context)

    def _result(self, name: str, given: dict[str, Any], context: Any) -> types.CallToolResult:
        if name == "add":
            total = given["a"] + given["b"]
            return types.CallToolResult(content=[], structured_content={"sum": total})
        if name == "fail":
            return types.CallToolResult(content=[_text("it did not work")], is_error=True)
        blocks: dict[str, Any] = {
            "echo": lambda: [_text(given.get("text", ""))],
            "count": lambda: [_text(str(self.runs["count"]))],
            "image": lambda: [_image()],
            "audio": lambda: [
                types.AudioContent(data=base64.b64encode(b"la la").decode(), mime_type="audio/wav")
            ],
            "report": lambda: [
                types.EmbeddedResource(
                    resource=types.TextResourceContents(
                        uri="file:///report.txt", mime_type="text/plain", text="all is well"
                    )
                )
            ],
            "pdf": lambda: [_blob("file:///report.pdf", "application/pdf", PDF)],
            "blob": lambda: [_blob("file:///data.bin", "application/octet-stream", b"\x00\x01")],
            "link": lambda: [
                types.ResourceLink(
                    name="a file",
                    uri="file:///a.txt",
                    mime_type="text/plain",
                    description="of text",
                )
            ],
            "headers": lambda: [_text(repr(dict(context.request.headers)))],
            "big": lambda: [_text("x" * given.get("bytes", 1))],
            "many": lambda: [_text(str(n)) for n in range(given.get("blocks", 1))],
            "script": lambda: self.answers[given["name"]],
        }
        if name in blocks:
            return types.CallToolResult(content=blocks[name]())
        return types.CallToolResult(content=[_text("done")])


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)


def _image() -> types.ImageContent:
    return types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def _blob(uri: str, mime_type: str, data: bytes) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri=uri, mime_type=mime_type, blob=base64.b64encode(data).decode()
        )
    )
