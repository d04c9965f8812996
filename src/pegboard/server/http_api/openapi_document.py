"""OpenApiDocument: this API's document for one caller, with a typed path for each tool that the caller may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.auth.rules import IdentityRules
from pegboard.consent.limits import CONSENT_GRANT_CALLS, CONSENT_GRANT_S
from pegboard.core.validated_entry import enforced_schema
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.embedded_schema import moved, object_of
from pegboard.server.http_api.limits import (
    AGENT_QUERY_CHARS,
    AGENT_SESSION_CHARS,
    API_FOUND_TOOLS,
    API_MOST_PAGE_TOOLS,
    API_PAGE_TOOLS,
    API_QUERY_CHARS,
)
from pegboard.server.http_api.problem_details import MEDIA_TYPE, REQUEST_STATUSES, STATUS_OF_KIND, ProblemError
from pegboard.server.http_api.responses import EVENT_STREAM, Reply, json_reply

API_TYPED_TOOLS = 500  # tools; with more, the document has one path for all of them

_TEXT: JSON = {"type": "string"}
_OPTIONAL: JSON = {"type": ["string", "null"]}
_ANY_OBJECT: JSON = {"type": "object"}
_CALL_STATUSES = sorted({*REQUEST_STATUSES, *STATUS_OF_KIND.values()})
_RETRY_AFTER: JSON = {"description": "Seconds until it makes sense to come back.", "schema": {"type": "integer"}}
_HEADERS: Mapping[int, JSON] = {
    401: {"WWW-Authenticate": {"description": "How to say who you are.", "required": True, "schema": _TEXT}},
    405: {"Allow": {"description": "What is possible here.", "required": True, "schema": _TEXT}},
    429: {"Retry-After": _RETRY_AFTER},
    503: {"Retry-After": _RETRY_AFTER},
}
_PROFILE: JSON = {
    "name": "profile", "in": "query", "description": "Look through this profile; by default your own.",
    "schema": {"type": "string", "minLength": 1},
}  # fmt: skip
_NAME: JSON = {
    "name": "name", "in": "path", "required": True, "description": "A tool's name, as the list has it.",
    "schema": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_.-]+$"},
}  # fmt: skip


class OpenApiRoute:
    """GET /openapi.json."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def show(self, request: ApiRequest) -> Reply:
        """Return the OpenAPI document of everything the caller may use."""
        catalog, form = self._api.gateway.catalog, request.query.get("form", "typed")
        if form not in ("typed", "generic"):
            raise ProblemError(400, "bad_request", f"form={form[:20]!r}: one of typed, generic is needed.")
        view = self._api.gateway.view(request.principal)
        return json_reply(
            document(
                catalog.name, "1", None if form == "generic" else await view.atools(),
                base=request.base, rules=catalog.identity,
            )
        )  # fmt: skip


_ANY_NAME: JSON = {**_NAME, "description": "Any name.", "schema": {"type": "string", "minLength": 1}}


def document(
    name: str, version: str, tools: Sequence[ToolEntry] | None, *, base: str = "", rules: IdentityRules | None = None
) -> JSON:
    """Return the document; `tools=None` gives one path for the calls of all tools."""
    schemas: JSON = dict(_SCHEMAS)
    paths: JSON = {path: dict(operations) for path, operations in _PATHS.items()}
    if tools is None or len(tools) > API_TYPED_TOOLS:
        call = _call("call_tool", "Call a tool.", _ANY_OBJECT, None, [_NAME, _AS_TASK])
        paths["/v1/tools/{name}/call"] = {"post": call}
    else:
        for entry in tools:
            paths[f"/v1/tools/{entry.wire_name}/call"] = {"post": _tool_call(entry, schemas)}
    drawn: JSON = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": version, "description": "Tools over plain HTTP."},
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if rules is not None and (rules.key_store or rules.tokens):
        drawn["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        # Where anonymous callers are admitted, a credential is optional.
        drawn["security"] = [{"bearer": []}, *([] if rules.anonymous is None else [{}])]
    return drawn


# ---------------------------------------------------------------- calls


def _tool_call(entry: ToolEntry, schemas: JSON) -> JSON:
    """Return the operation that calls one tool; its types are added to `schemas`."""
    spec, wire_name = entry.spec, entry.wire_name
    types: dict[str, JSON | None] = {}
    # A tool that may run as a task may return a task.
    output_schema = spec.output_schema if spec.task == "forbidden" else None
    for kind, schema in (("input", enforced_schema(entry)), ("output", output_schema)):
        place = f"{wire_name}.{kind}"
        embedded = None if schema is None else moved(schema, f"#/components/schemas/{place}")
        if embedded is not None:
            schemas[place] = embedded
        types[kind] = None if embedded is None else {"$ref": f"#/components/schemas/{place}"}
    wishes = [] if spec.task == "forbidden" else [_AS_TASK]
    drawn = _call(f"call_{wire_name}", spec.description, types["input"] or _ANY_OBJECT, types["output"], wishes)
    drawn["summary"] = spec.title or wire_name
    if spec.deprecated is not None:
        drawn["deprecated"] = True
    if spec.input_schema.get("required"):
        drawn["requestBody"]["required"] = True
    return drawn


def _call(operation: str, description: str, arguments: JSON, output: JSON | None, parameters: list[JSON]) -> JSON:
    result = {"$ref": "#/components/schemas/Result"}
    if output is not None:
        result = {"allOf": [result, object_of(("structuredContent",), structuredContent=output)]}
    answer = {"application/json": {"schema": result}, EVENT_STREAM: {"schema": _TEXT}}
    return {
        "operationId": operation,
        "description": description,
        "parameters": [*parameters, _PROFILE],
        "requestBody": {"content": {"application/json": {"schema": arguments}}},
        "responses": {
            "200": {"description": "The result of the tool; as events if `Accept` asks for them.", "content": answer},
            **_problems(_CALL_STATUSES),
        },
    }


# ---------------------------------------------------------------- the operations that all callers have


def _problems(statuses: Sequence[int]) -> JSON:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): {
            "description": "Problem details.",
            "content": content,
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
        for status in sorted({*statuses, 405})
    }


def _plain(
    operation: str,
    description: str,
    schema: JSON,
    parameters: Sequence[JSON] = (),
    *,
    media: str = "application/json",
    also: Sequence[int] = (),
) -> JSON:
    return {
        "operationId": operation,
        "description": description,
        "parameters": [*parameters, _PROFILE],
        "responses": {
            "200": {"description": "Done.", "content": {media: {"schema": schema}}},
            **_problems([*REQUEST_STATUSES, *also]),
        },
    }


def _decision(operation: str, description: str, required: Sequence[str] = (), **fields: JSON) -> JSON:
    """Return the operation that answers a question, with its request body."""
    drawn = _plain(operation, description, _CONSENT, [_CONSENT_ID], also=_DECIDED)
    body = {**object_of(tuple(required), **fields), "additionalProperties": False}
    drawn["requestBody"] = {"required": bool(required), "content": {"application/json": {"schema": body}}}
    return drawn


def _query(name: str, description: str, schema: JSON, *, required: bool = False) -> JSON:
    return {"name": name, "in": "query", "description": description, "required": required, "schema": schema}


def _up_to(most: int) -> JSON:
    return {"type": "integer", "minimum": 1, "maximum": most}


_FILE: JSON = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
_DOCUMENT_ID: JSON = {
    "name": "id", "in": "path", "required": True, "description": "The document, by its id.",
    "schema": {"type": "string", "minLength": 1},
}  # fmt: skip
_TAKEN = object_of(
    ("document_id", "chunks", "path", "status", "space", "source"),
    document_id=_TEXT, chunks={"type": "integer"}, path=_TEXT,
    status={"enum": ["added", "changed", "unchanged"]}, space=_TEXT, source=_TEXT, note=_TEXT,
)  # fmt: skip


_META: JSON = {
    "name": "meta", "in": "query", "style": "form", "schema": {"const": ""},
    "description": "Empty, it clears the metadata of a replaced document. `meta.KEY=VALUE` gives it other metadata; "
    "without either it keeps its own.",
}  # fmt: skip


def _upload() -> JSON:
    """Return the operation that uploads a file."""
    drawn = _plain(
        "upload_document",
        "Take a file into the documents of a space, in the place of what was at its path. Its name tells how it is "
        "read. For callers who may write there.",
        _TAKEN,
        [
            _query("path", "What it is called, folders too.", {"type": "string", "minLength": 1}, required=True),
            _query("source", "The source that it belongs to.", {"type": "string", "default": "uploads"}),
            _query("space", "The space, for callers who are in none.", _TEXT),
            _META,
        ],
        also=(422, 504),
    )
    drawn["responses"]["201"] = {**drawn["responses"]["200"], "description": "There was none at its path."}
    return drawn


def _run() -> JSON:
    """Return the operation that runs an agent."""
    result = object_of(
        ("agent", "runId", "status", "output", "usage"),
        agent=_TEXT, runId=_TEXT, status={"const": "completed"}, output={}, stoppedReason=_MAYBE_TEXT,
        awaySources={"type": "array", "items": _TEXT},
        usage=_ANY_OBJECT,
    )  # fmt: skip
    drawn = _call("run_agent", "Run an agent.", _AGENT_QUERY, None, [_AGENT])
    answer = {"application/json": {"schema": result}, EVENT_STREAM: {"schema": _TEXT}}
    text = "How the run ended; its text and events before that when `Accept` says so."
    drawn["responses"]["200"] = {"description": text, "content": answer}
    drawn["requestBody"]["required"] = True
    return drawn


_MAYBE_TEXT: JSON = {"type": ["string", "null"]}
_AGENT: JSON = {
    "name": "name", "in": "path", "required": True, "description": "The agent, by its name.",
    "schema": {"type": "string", "minLength": 1},
}  # fmt: skip
_AGENT_QUERY: JSON = {
    **object_of(
        ("query",),
        query={"type": "string", "minLength": 1, "maxLength": AGENT_QUERY_CHARS},
        context={"type": ["object", "null"]},
        sessionId={"type": ["string", "null"], "minLength": 1, "maxLength": AGENT_SESSION_CHARS},
    ),
    "additionalProperties": False,
}
_TOOL: JSON = {"$ref": "#/components/schemas/Tool"}
_TASK: JSON = {"$ref": "#/components/schemas/Task"}
_GRANT: JSON = object_of(
    ("principal", "space", "access"), principal=_TEXT, space=_TEXT, access={"enum": ["read", "write"]}
)
_TASK_ID: JSON = {
    "name": "id", "in": "path", "required": True, "description": "The id of a task.",
    "schema": {"type": "string", "minLength": 1},
}  # fmt: skip
_AS_TASK = _query("as_task", "`true`: continue as a task, if the tool allows that.", {"enum": ["true", "false"]})
_ANSWERS: JSON = {"type": "object", "additionalProperties": {"type": "object"}}
_CONSENT: JSON = {"$ref": "#/components/schemas/Consent"}
_CONSENT_ID: JSON = {
    "name": "id", "in": "path", "required": True, "description": "The id of a question, an answer or a grant.",
    "schema": {"type": "string", "minLength": 1},
}  # fmt: skip
_DECIDED = (409, 422)
_CONNECTION: JSON = {"$ref": "#/components/schemas/Connection"}
_CONNECTION_ID: JSON = {**_CONSENT_ID, "description": "The id of a connection."}
_AWAITED: JSON = object_of(
    ("source", "user", "space", "scopes", "expiresAt", "url"),
    source=_TEXT, user=_TEXT, space=_OPTIONAL, scopes={"type": "array", "items": _TEXT}, expiresAt=_TEXT, url=_TEXT,
)  # fmt: skip
_LINK: JSON = object_of(("source", "url", "expiresAt"), source=_TEXT, url=_TEXT, expiresAt=_TEXT)
_SECONDS: JSON = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": CONSENT_GRANT_S,
    "description": "How long it is good.",
}
_SCHEMAS: JSON = {
    "Tool": object_of(
        ("name", "inputSchema"),
        name=_TEXT, title=_TEXT, description=_TEXT, inputSchema=_ANY_OBJECT, outputSchema=_ANY_OBJECT,
        annotations=_ANY_OBJECT, asks={"type": "boolean"}, connect=_TEXT,
    ),
    "Result": object_of(
        ("callId", "content"),
        callId=_TEXT, taskId=_TEXT, content={"type": "array", "items": object_of(("type",), type=_TEXT)},
        structuredContent={},
    ),
    "Problem": object_of(
        ("type", "title", "status", "kind", "detail"),
        type=_TEXT, title=_TEXT, status={"type": "integer"}, kind=_TEXT, detail=_TEXT, hint=_TEXT,
        retryable={"type": "boolean"}, retry_after_s={"type": "number"}, outcome_unknown={"type": "boolean"},
        details=_ANY_OBJECT, callId=_TEXT,
    ),
    "Decision": object_of(
        ("name", "visible", "code", "reason", "callable"),
        name=_TEXT, profile={"type": ["string", "null"]}, visible={"type": "boolean"}, code=_TEXT, reason=_TEXT,
        fix={"type": ["object", "null"]}, next={"type": ["string", "null"]}, nextReason=_TEXT,
        callable={"type": "boolean"}, asks={"type": "boolean"}, blocked={"type": ["object", "null"]},
    ),
    "Consent": object_of(
        ("id", "state", "tool", "question", "expiresAt", "usesLeft", "uses"),
        id=_TEXT, state={"enum": ["asked", "agreed", "declined"]}, tool=_TEXT, definitionHash=_TEXT,
        argumentsDigest=_MAYBE_TEXT, arguments={"type": ["object", "null"]}, matching={"type": ["object", "null"]},
        question=_TEXT, credential=_MAYBE_TEXT, user=_MAYBE_TEXT, space=_MAYBE_TEXT, session=_MAYBE_TEXT,
        agent=_MAYBE_TEXT, askedAt=_TEXT, decidedAt=_MAYBE_TEXT, decidedBy=_MAYBE_TEXT, expiresAt=_TEXT,
        usesLeft={"type": "integer"}, uses={"type": "integer"}, parameters={"type": ["array", "null"], "items": _TEXT},
        any={"type": ["array", "null"], "items": _TEXT}, anyOther={"type": ["boolean", "null"]}, scope=_MAYBE_TEXT,
        approvalsNeeded={"type": "integer"}, approvers={"type": "array", "items": _TEXT},
        edited={"type": ["object", "null"]}, editedBy=_MAYBE_TEXT,
        declineReason=_MAYBE_TEXT,
    ),
    "Task": object_of(
        ("id", "tool", "state", "durable"),
        id=_TEXT, tool=_TEXT,
        state={"enum": ["working", "input_required", "completed", "failed", "cancelled"]},
        created_at={"type": "number"}, updated_at={"type": "number"}, expires_at={"type": "number"},
        durable={"type": "boolean"}, message=_TEXT, fraction={"type": "number"}, questions=_ANY_OBJECT,
        result=_ANY_OBJECT, error=_ANY_OBJECT,
    ),
    "Connection": object_of(
        ("id", "user", "source", "issuer", "scopes", "state"),
        id=_TEXT, user=_TEXT, space=_OPTIONAL, source=_TEXT, account=_OPTIONAL, resource=_TEXT, issuer=_TEXT,
        scopes={"type": "array", "items": _TEXT}, state={"enum": ["connected", "ended", "disconnected"]},
        createdAt=_TEXT, updatedAt=_TEXT, tokenExpiresAt=_OPTIONAL, revoked={"type": "boolean"}, reason=_TEXT,
    ),
    "Hit": object_of(
        ("name", "score", "confidence"),
        name=_TEXT,
        score={"type": "number"},
        confidence={"enum": ["strong", "fair", "weak"]},
        title=_TEXT,
        description=_TEXT,
        asks={"type": "boolean"},
        connect=_TEXT,
    ),
}  # fmt: skip
_PATHS: JSON = {
    "/v1/tools": {
        "get": _plain(
            "list_tools", "List the tools that you may use.",
            object_of(("tools",), tools={"type": "array", "items": _TOOL}, nextCursor=_TEXT),
            [
                _query("limit", "Tools in a page.", {**_up_to(API_MOST_PAGE_TOOLS), "default": API_PAGE_TOOLS}),
                _query("cursor", "The place to continue: `nextCursor` of the previous page.", _TEXT),
            ],
        ),
    },
    "/v1/tools/{name}": {"get": _plain("show_tool", "Show one tool.", _TOOL, [_NAME])},
    "/v1/tools/{name}/why": {
        "get": _plain(
            "why_tool", "Tell why you may use a tool or not.", {"$ref": "#/components/schemas/Decision"}, [_ANY_NAME]
        ),
    },
    "/v1/search": {
        "get": _plain(
            "search_tools", "Find the tools that serve a request, best first.",
            object_of(
                ("query", "hits"),
                query=_TEXT,
                hits={"type": "array", "items": {"$ref": "#/components/schemas/Hit"}},
                nearest={"type": "array", "items": _TEXT},
            ),
            [
                _query(
                    "q", "What is needed, in any words.",
                    {"type": "string", "minLength": 1, "maxLength": API_QUERY_CHARS}, required=True,
                ),
                _query("limit", "The maximum number of results.", {**_up_to(API_FOUND_TOOLS), "default": 8}),
            ],
        ),
    },
    "/v1/agents/{name}/run": {"post": _run()},
    "/v1/calls/{id}/cancel": {
        "post": _plain(
            "cancel_call", "Stop a running call of yours.",
            object_of(("callId", "cancelled"), callId=_TEXT, cancelled={"type": "boolean"}),
            [{"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}],
        ),
    },
    "/v1/tasks": {
        "get": _plain(
            "list_tasks", "List your tasks, the newest first.",
            object_of(("tasks",), tasks={"type": "array", "items": _TASK}), [],
        ),
    },
    "/v1/tasks/{id}": {"get": _plain("show_task", "Show one task, with its questions or result.", _TASK, [_TASK_ID])},
    "/v1/tasks/{id}/answer": {
        "post": {
            **_plain("answer_task", "Answer the questions of a task.", _TASK, [_TASK_ID], also=_DECIDED),
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ANSWERS}}},
        },
    },
    "/v1/tasks/{id}/cancel": {"post": _plain("cancel_task", "End a task.", _TASK, [_TASK_ID])},
    "/v1/tasks/{id}/resume": {
        "post": _plain("resume_task", "Resume an interrupted task.", _TASK, [_TASK_ID]),
    },
    "/v1/documents": {
        "get": _plain(
            "list_documents", "List documents by space, source and path.",
            object_of(("items", "next_cursor", "truncated"), items={"type": "array", "items": _ANY_OBJECT},
                      next_cursor=_MAYBE_TEXT, truncated={"type": "boolean"}),
            [
                _query("space", "Of this space.", _TEXT),
                _query("source", "Of this source, by name or id.", _TEXT),
                _query("folder", "Below this folder.", _TEXT),
                _query("limit", "The maximum number of rows.", _up_to(200)),
                _query("cursor", "The place to continue.", _TEXT),
            ],
            also=(422,),
        ),
        "post": {**_upload(), "requestBody": _FILE},
    },
    "/v1/documents/{id}": {
        "get": _plain("show_document", "Show the details of a document.", _ANY_OBJECT, [_DOCUMENT_ID]),
        "put": {
            **_plain(
                "replace_document", "Replace the content of a document. For callers who may write there.", _TAKEN,
                [_DOCUMENT_ID, _META], also=(422, 504),
            ),
            "requestBody": _FILE,
        },
        "delete": _plain(
            "remove_document", "Remove a document. For callers who may write there.",
            object_of(("document_id", "space", "source", "path", "removed"), document_id=_TEXT, space=_TEXT,
                      source=_TEXT, source_type=_TEXT, path=_TEXT, removed={"const": True}, note=_TEXT),
            [_DOCUMENT_ID],
        ),
    },
    "/v1/documents/{id}/text": {
        "get": _plain(
            "read_document_text", "Read the text of a document, at most 50,000 characters at once.", _ANY_OBJECT,
            [_DOCUMENT_ID, _query("start", "The first character, counted from 0.", {"type": "integer", "minimum": 0})],
            also=(422,),
        ),
    },
    "/v1/audit": {
        "get": _plain(
            "list_audit", "List the newest rows of the audit, the newest first; for the role `operator`.",
            object_of(("rows",), rows={"type": "array", "items": _ANY_OBJECT}, nextCursor=_TEXT),
            [
                _query("tool", "Of this tool, by id or requested name; a glob.", _TEXT),
                _query("user", "Of this user.", _TEXT),
                _query("key", "With the API key of this name.", _TEXT),
                _query("space", "In this space.", _TEXT),
                _query("in_profile", "Through this profile.", _TEXT),
                _query("agent", "By this agent.", _TEXT),
                _query("kind", "Of this outcome or event.", _TEXT),
                _query("call_id", "Of the call with this id, or whose id begins with it.", _TEXT),
                _query("since", "Not older than this: an ISO time, or an age such as 12h.", _TEXT),
                _query("until", "Older than this: an ISO time, or an age such as 12h.", _TEXT),
                _query("slower_than", "That took longer, in seconds.", {"type": "number", "minimum": 0}),
                _query("limit", "The maximum number.", {**_up_to(API_MOST_PAGE_TOOLS), "default": API_PAGE_TOOLS}),
                _query("cursor", "The `nextCursor` of the page before.", _TEXT),
            ],
        ),
    },
    "/v1/grants": {
        "get": _plain(
            "list_grants", "List who may see which space of documents; for the role `document_administrator`.",
            object_of(("grants",), grants={"type": "array", "items": _GRANT}), [_query("space", "Of this one.", _TEXT)],
        ),
        "post": {
            **_plain("grant_space", "Grant a space to a user or a role.", _GRANT, also=(422,)),
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {**_GRANT, "required": ["principal", "space"],
                                                            "additionalProperties": False}}},
            },
        },
        "delete": _plain(
            "revoke_space", "Take a grant back.", object_of(("revoked",), revoked=_ANY_OBJECT),
            [_query("principal", "Whose.", _TEXT, required=True), _query("space", "Of which.", _TEXT, required=True)],
        ),
    },
    "/v1/connections": {
        "get": _plain(
            "list_connections", "List your accounts at other services; with the role `operator` those of everybody.",
            object_of(
                ("connections",),
                connections={"type": "array", "items": _CONNECTION},
                sources={"type": "array", "items": object_of(
                    ("source", "connected"), source=_TEXT, connected={"type": "boolean"},
                )},
            ),
            [_query("user", "Of this user.", _TEXT)],
        ),
        "post": {
            **_plain("begin_connection", "Get a link that connects an account; it works once.", _LINK,
                     also=(201, 422)),
            "requestBody": {"required": True, "content": {"application/json": {"schema": {
                **object_of(("source",), source=_TEXT), "additionalProperties": False,
            }}}},
        },
    },
    "/v1/connections/{id}": {
        "get": _plain("show_connection", "Show one connection, without its tokens.", _CONNECTION, [_CONNECTION_ID]),
        "delete": _plain(
            "end_connection", "Delete a connection, and revoke its tokens at the issuer.", _CONNECTION,
            [_CONNECTION_ID],
        ),
    },
    "/v1/consents": {
        "get": _plain(
            "list_consents",
            "List what waits for you: questions, for people with the role `approver`, and accounts to connect.",
            object_of(
                ("consents", "connections"),
                consents={"type": "array", "items": _CONSENT},
                connections={"type": "array", "items": _AWAITED},
            ),
            [_query("state", "`all`: answers and grants too.", {"enum": ["asked", "all"], "default": "asked"})],
        ),
    },
    "/v1/consents/{id}": {
        "get": _plain("show_consent", "Show one question, answer or grant.", _CONSENT, [_CONSENT_ID]),
        "delete": _plain("forget_consent", "Take an answer or a grant back.", _CONSENT, [_CONSENT_ID], also=_DECIDED),
    },
    "/v1/consents/{id}/approve": {
        "post": _decision(
            "approve_consent", "Say yes: the same call passes once.", seconds=_SECONDS,
            arguments={"type": "object", "description": "The call runs with these arguments instead of its own."},
        ),
    },
    "/v1/consents/{id}/deny": {
        "post": _decision("deny_consent", "Say no, which holds in the session of the caller."),
    },
    "/v1/consents/{id}/grant": {
        "post": _decision(
            "grant_consent",
            "Allow the caller several calls. `where` gives values of arguments, `same` names arguments that keep the "
            "value of the question, and `any` those that may have any value. All others are absent or have their "
            "default, unless `anyOther` is true. With `preview` nothing is granted, and `scope` describes the grant.",
            ("calls", "seconds"), calls=_up_to(CONSENT_GRANT_CALLS), seconds=_SECONDS, where=_ANY_OBJECT,
            same={"type": "array", "items": _TEXT}, any={"type": "array", "items": _TEXT},
            anyOther={"type": "boolean"}, preview={"type": "boolean"},
        ),
    },
    "/v1/events": {
        "get": _plain(
            "listen", "Receive events of your own calls and changes of your list until you disconnect.", _TEXT,
            media=EVENT_STREAM,
        ),
    },
}  # fmt: skip
