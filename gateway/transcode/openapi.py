"""The OpenAPI 3.1 description of the HTTP API, made from what also serves it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chassis.errors import RULES
from drover.api.v1.annotations_pb2 import (
    KEY_KIND_API,
    KEY_KIND_ENVIRONMENT,
    KEY_KIND_WORK_ITEM,
)
from gateway import beta, errors, idempotency, scopes
from gateway.downloads import content_of
from gateway.transcode.routes import Kind
from gateway.transcode.schema import Schema, Schemas

if TYPE_CHECKING:
    from gateway.transcode.form import Form
    from gateway.transcode.routes import Contract, Route
    from gateway.transcode.shape import FieldShape

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CLIENT_GONE = 499  # never answered: nobody is there to read it
_TOO_LARGE = 413
_STATUS_TEXTS = {
    400: "The request is not valid.",
    401: "The API key is missing or unknown.",
    402: "Billing does not allow it.",
    403: "The key does not allow it.",
    404: "There is no such thing, or the beta header is missing.",
    405: "The path does not have this method.",
    409: "It conflicts with the state of things.",
    412: "Another worker has the work item, or none; `error.details.current_state` is its lease.",
    413: "The request body is too large.",
    429: "Too many requests.",
    500: "Something went wrong in the server.",
    503: "A service is not available.",
    504: "A service did not answer in time.",
    529: "The server is overloaded.",
}
_ERROR: Schema = {
    "type": "object",
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "properties": {
                "type": {
                    "type": "string",
                    "enum": sorted(
                        {rule.api_type for rule in RULES.values()} | errors.MEMORY_CONFLICTS.keys()
                    ),
                },
                "message": {"type": "string"},
                **{
                    told: {"anyOf": [{"type": "string"}, {"type": "null"}]}
                    for told in errors.MEMORY_CONFLICTS["memory_path_conflict_error"]
                },
                "details": {
                    "type": "object",
                    "properties": {"error_code": {"type": "string"}},
                },
            },
            "required": ["type", "message"],
        },
        "request_id": {"type": "string"},
    },
    "required": ["type", "error", "request_id"],
}
_REQUEST_ID = {
    "request-id": {
        "description": "Names this request in the server's logs.",
        "required": True,
        "schema": {"type": "string"},
    }
}
_RETRY = {
    "x-should-retry": {
        "description": "`false` where the same request would fail again.",
        "schema": {"type": "string", "enum": ["false"]},
    },
    "retry-after": {
        "description": "Seconds after which the same request may succeed.",
        "schema": {"type": "string"},
    },
}

_ATTACHMENT: Schema = {
    "content-disposition": {
        "description": "The name to save it under; it is never to be shown in place.",
        "required": True,
        "schema": {"type": "string"},
    }
}

_IDEMPOTENCY_KEY: Schema = {
    "name": idempotency.HEADER,
    "in": "header",
    "description": (
        "Names this request: sent again with the same key within 24 hours it changes nothing and "
        "gets the first answer; with another path or body it is a conflict."
    ),
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": idempotency.MAX_LENGTH,
        "pattern": idempotency.PATTERN,
    },
}
_REPLAYED: Schema = {
    idempotency.REPLAYED: {
        "description": "`true` on the answer of an earlier request that this one repeats.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}


_API: list[Schema] = [{"ApiKey": []}, {"Bearer": []}]
_SCHEMES: dict[int, list[Schema]] = {
    KEY_KIND_API: _API,
    KEY_KIND_ENVIRONMENT: [{"EnvironmentKey": []}],
    KEY_KIND_WORK_ITEM: [{"WorkToken": []}],
}
_WORKERS_SCHEMES: Schema = {
    "EnvironmentKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "The key of a self-hosted environment, for that environment's routes.",
    },
    "WorkToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token in the secret of a polled work item, for that item's routes.",
    },
}


def describe(contract: Contract, version: str) -> Schema:
    """The whole description, ready for JSON."""
    schemas = Schemas(contract.shapes)
    paths: dict[str, Schema] = {}
    for route in contract.routes:
        operation = _operation(route, schemas)
        paths.setdefault(route.template, {})[route.verb.lower()] = operation
    statuses = sorted(
        {rule.http for rule in RULES.values()} - {_CLIENT_GONE} | {405, errors.PRECONDITION}
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Drover",
            "version": version,
            "description": "Managed agents, self-hosted. The official Anthropic SDK drives it.",
        },
        "security": _API,
        "paths": paths,
        "components": {
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "Bearer": {"type": "http", "scheme": "bearer"},
                **_WORKERS_SCHEMES,
            },
            "responses": {f"Error{status}": _error_response(status) for status in statuses},
            "schemas": {"Error": _ERROR, **dict(sorted(schemas.components.items()))},
        },
    }


def _operation(route: Route, schemas: Schemas) -> Schema:
    name = route.method.name
    done = {Kind.EVENTS: _stream, Kind.DOWNLOAD: _download}.get(route.kind, _answer)
    operation: Schema = {
        "operationId": f"{name}Alias" if route.additional else name,
        "summary": _WORDS.sub(" ", name).capitalize(),
        "tags": [route.method.containing_service.name.removesuffix("Service")],
        "parameters": _parameters(route, schemas),
        "responses": {
            "200": done(route, schemas),
            **{
                str(status): {"$ref": f"#/components/responses/Error{status}"}
                for status in _STATUS_TEXTS
                if _may_answer(route, status)
            },
        },
    }
    if not route.rules.keys or KEY_KIND_API in route.rules.keys:
        operation["x-scope"] = scopes.needed(route)
    if kinds := sorted(route.rules.keys):
        operation["security"] = [scheme for kind in kinds for scheme in _SCHEMES[kind]]
    if route.body:
        body = schemas.body(route.method.input_type, route.request.elsewhere)
        operation["requestBody"] = {
            "required": "required" in body or "properties" not in body,
            "content": {"application/json": {"schema": body}},
        }
    if route.form is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"multipart/form-data": {"schema": _form(route.form, schemas)}},
        }
    return operation


def _form(form: Form, schemas: Schemas) -> Schema:
    files: Schema = {"type": "string", "format": "binary"}
    if form.many:
        files = {"type": "array", "items": files, "minItems": 1}
    fields = {name: schemas.field(field) for name, field in form.fields.items()}
    return {
        "type": "object",
        "properties": {form.part: files, **fields},
        "required": [form.part],
        "additionalProperties": False,
    }


def _may_answer(route: Route, status: int) -> bool:
    if status == errors.PRECONDITION:
        return "expected_last_heartbeat" in route.request.query
    return status != _TOO_LARGE or route.verb == "POST"


def _answer(route: Route, schemas: Schemas) -> Schema:
    return {
        "description": "Done.",
        "headers": {**_REQUEST_ID, **_REPLAYED} if route.changes else _REQUEST_ID,
        "content": {"application/json": {"schema": schemas.answer(route.answer)}},
    }


def _stream(route: Route, schemas: Schemas) -> Schema:
    frame = route.method.output_type.fields_by_name["frames"].message_type
    fields = frame.fields if frame is not None else ()
    events = [schemas.answer(f.message_type) for f in fields if f.message_type is not None]
    return {
        "description": "Server-sent events; the `data` of each is one of `x-event-schema`.",
        "headers": _REQUEST_ID,
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "x-event-schema": {"oneOf": events},
            }
        },
    }


def _download(route: Route, _schemas: Schemas) -> Schema:
    content = content_of(route)
    return {
        "description": content.description,
        "headers": {**_REQUEST_ID, **_ATTACHMENT},
        "content": {content.media_type: {"schema": {"type": "string", "format": "binary"}}},
    }


def _error_response(status: int) -> Schema:
    return {
        "description": _STATUS_TEXTS[status],
        "headers": {**_REQUEST_ID, **_RETRY},
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


def _parameters(route: Route, schemas: Schemas) -> list[Schema]:
    found: list[Schema] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
        }
        for name in route.request.path
    ]
    for name, field in route.request.query.items():
        shown = f"{name}[]" if field.repeated else name
        found.append(_parameter(shown, "query", field, schemas))
    for name, field in route.request.headers.items():
        found.append(_parameter(name, "header", field, schemas))
    if route.kind is Kind.EVENTS:
        found.append(
            {
                "name": "last-event-id",
                "in": "header",
                "description": "Begin behind this event; goes before `after`.",
                "schema": {"type": "string"},
            }
        )
    if route.changes:
        found.append(_IDEMPOTENCY_KEY)
    if route.rules.beta:
        names = [name for name in (route.rules.beta, route.rules.other_beta) if name]
        one = {"const": names[0]} if len(names) == 1 else {"enum": names}
        which = "the one shown" if len(names) == 1 else "one of those shown, not both"
        found.append(
            {
                "name": beta.HEADER,
                "in": "header",
                "required": True,
                "description": f"Beta names, comma separated; this route needs {which}.",
                "schema": one,
            }
        )
    return found


def _parameter(name: str, place: str, field: FieldShape, schemas: Schemas) -> Schema:
    needed = field.rules.required and not field.presence
    return {"name": name, "in": place, "required": needed, "schema": schemas.field(field)}
