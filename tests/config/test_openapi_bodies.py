"""The bodies that operations take: forms as their encoding says, and multipart with files."""

import base64
import email.parser
import email.policy
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.builtin.web import Asked
from tests.config.api import asked, declared, post, project_of, spec
from tests.config.project import Project
from tests.core.parts import ANN
from tests.egress.loopback import RawServer, answer

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
RAW = bytes(range(256)) + b"\r\n--"
FILE = {"type": "string", "format": "binary"}


def form(
    properties: dict[str, Any], *, media: str, encoding: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    operation = post({"type": "object", "properties": properties} | more, media=media)
    operation["post"]["requestBody"]["content"][media]["encoding"] = encoding or {}
    return spec({"/": operation})


async def sent(project: Project, description: dict[str, Any], args: dict[str, Any]) -> list[tuple[str, str]]:
    request = await asked(project, description, args)
    assert request.headers["content-type"] == FORM
    return parse_qsl(request.body.decode(), strict_parsing=True)


@pytest.mark.parametrize(
    ("encoding", "pairs"),
    [
        ({}, [("o", '{"a":[1,2],"b":"x&y"}'), ("l", "1"), ("l", "2")]),
        ({"o": {"style": "deepObject", "explode": True}},
         [("o[a]", "1"), ("o[a]", "2"), ("o[b]", "x&y"), ("l", "1"), ("l", "2")]),
        ({"l": {"explode": False}}, [("o", '{"a":[1,2],"b":"x&y"}'), ("l", "1,2")]),
        ({"l": {"style": "pipeDelimited", "explode": False}}, [("o", '{"a":[1,2],"b":"x&y"}'), ("l", "1|2")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_form_is_written_as_its_encoding_says(
    project: Project, encoding: dict[str, Any], pairs: list[tuple[str, str]], is_whole: bool
) -> None:
    # With more than plain properties the body is one argument.
    more = {"minProperties": 1} if is_whole else {}
    description = form({"o": {}, "l": {}}, media=FORM, encoding=encoding, **more)
    args: dict[str, Any] = {"o": {"a": [1, 2], "b": "x&y"}, "l": [1, 2, None]}
    assert await sent(project, description, {"body": args} if is_whole else args) == pairs


def parts_of(request: Asked) -> list[tuple[dict[str, str], bytes]]:
    """Return the parts of a multipart body as a reader of mail sees them."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + request.body)
    return [
        (dict(part.items()), part.get_payload(decode=True) or b"")  # type: ignore[union-attr,misc] - each is a message
        for part in message.iter_parts()  # type: ignore[attr-defined] - the policy makes messages of this kind
    ]


async def test_a_multipart_body_carries_texts_values_and_files(project: Project) -> None:
    properties = {
        "note": {"type": "string"}, "count": {"type": "integer"}, "more": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "file": FILE | {"description": "A picture."}, "files": {"type": "array", "items": FILE},
        "typed": {"type": "string", "contentMediaType": "image/png"}, "gone": {"type": "string"},
    }  # fmt: skip
    description = form(properties, media=MULTIPART, encoding={"file": {"contentType": "image/png, image/jpeg"}})
    drawn = declared(project, description).input_schema["properties"]
    assert drawn["file"] == {
        "type": "string", "contentEncoding": "base64", "description": "A picture. The bytes of a file, in base64.",
    }  # fmt: skip
    assert drawn["files"]["items"]["contentEncoding"] == "base64"
    packed = base64.b64encode(RAW).decode()
    args = {"note": 'a "b"\r\n--x é', "count": 10**20, "more": {"k": 1}, "tags": ["x", "y"], "file": packed}
    request = await asked(project, description, args | {"files": [packed, ""], "typed": packed})
    shown = 'form-data; name="{0}"'
    file = shown + '; filename="{0}"'
    kind, octets = "Content-Type", "application/octet-stream"
    assert parts_of(request) == [
        ({"Content-Disposition": shown.format("note")}, 'a "b"\r\n--x é'.encode()),
        ({"Content-Disposition": shown.format("count")}, b"%d" % 10**20),
        ({"Content-Disposition": shown.format("more"), kind: "application/json"}, b'{"k":1}'),
        ({"Content-Disposition": shown.format("tags")}, b"x"),
        ({"Content-Disposition": shown.format("tags")}, b"y"),
        ({"Content-Disposition": file.format("file"), kind: "image/png"}, RAW),
        ({"Content-Disposition": file.format("files"), kind: octets}, RAW),
        ({"Content-Disposition": file.format("files"), kind: octets}, b""),
        ({"Content-Disposition": file.format("typed"), kind: "image/png"}, RAW),
    ]


async def test_no_argument_ends_its_part_and_begins_another(project: Project) -> None:
    description = form({"a": {"type": "string"}, "b": {"type": "string"}}, media=MULTIPART)
    first = await asked(project, description, {"a": "x", "b": "y"})
    boundary = first.headers["content-type"].partition("boundary=")[2]
    evil = f'x\r\n--{boundary}\r\nContent-Disposition: form-data; name="admin"\r\n\r\n1\r\n--{boundary}--'
    request = await asked(project, description, {"a": evil, "b": "y"})
    assert [body for _, body in parts_of(request)] == [evil.encode(), b"y"]


async def test_a_file_that_is_no_base64_is_refused_before_anything_is_sent(project: Project) -> None:
    async with RawServer(answer()) as server:
        tools = project_of(project, form({"file": FILE}, media=MULTIPART), server.url).view(user="ann")
        for bad in ("not base64!", "YQ", "Y Q = ="):
            error = (await tools.call("api__ask", {"file": bad})).error
            assert error is not None
            assert (error.kind, "'file' is a file: give its bytes in base64" in error.message) == (
                "invalid_arguments",
                True,
            )
        assert server.hits == 0


def test_a_form_that_cannot_be_written_is_left_out(project: Project) -> None:
    catalog = project_of(project, spec({"/": post({"type": "array", "items": FILE}, media=MULTIPART)})).catalog()
    assert catalog.view(ANN).names() == []
    [rejected] = catalog.registry.sources["api"].rejected  # type: ignore[attr-defined] - of this kind
    assert rejected.reason == "its body is a form, and the schema of the form is not an object"


@pytest.mark.parametrize(
    ("properties", "more", "args", "parts"),
    [
        # One file or several: both are files.
        ({"f": {"oneOf": [FILE, {"type": "array", "items": FILE}]}}, {}, {"f": ["AAA=", "AQ=="]}, [b"\0\0", b"\1"]),
        # A file or its address: what can be written is the text.
        ({"f": {"anyOf": [{"type": "string"}, FILE]}}, {}, {"f": "https://x/y"}, [b"https://x/y"]),
        # The fields stand in the parts of the schema.
        ({"f": FILE}, {"allOf": [{"properties": {"n": {"type": "integer"}}, "required": ["n"]}]},
         {"f": "AAA=", "n": 5}, [b"\0\0", b"5"]),
        ({"f": FILE}, {"oneOf": [{"required": ["f"]}]}, {"f": "AAA="}, [b"\0\0"]),
        # No name ends the head of its part.
        ({'f"\r\nX: y': FILE}, {}, {"body": {'f"\r\nX: y': "AAA="}}, [b"\0\0"]),
        # Fields that nobody declared.
        ({}, {}, {"body": {"any": [1, 2]}}, [b"1", b"2"]),
    ],
)  # fmt: skip
async def test_a_form_is_written_whatever_its_schema_is_made_of(
    project: Project, properties: dict[str, Any], more: dict[str, Any], args: dict[str, Any], parts: list[bytes]
) -> None:
    media: dict[str, Any] = {"type": "object", "properties": properties} if properties else {}
    request = await asked(project, spec({"/": post(media | more, media=MULTIPART)}), args)
    written = parts_of(request)
    assert [body for _, body in written] == parts
    assert all(set(head) <= {"Content-Disposition", "Content-Type"} for head, _ in written)
