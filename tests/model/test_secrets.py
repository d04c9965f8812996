"""Secrets: a type that cannot be printed, and values that leave in no spelling."""

import asyncio
import base64
import copy
import json
import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pegboard import (
    CallContext,
    CallError,
    Catalog,
    DefinitionError,
    ImageContent,
    ResourceContent,
    ResourceLink,
    Secret,
    ToolContext,
)
from pegboard.core.redaction import Redactor
from pegboard.model.record import replace
from tests.core.parts import Recorder, kind_of, one_tool
from tests.timing import CPU, within

# Shares nothing with the other secrets: it must be removed for its own sake.
CRM = "crm-Zq7WvT1xKp-upstream"
CANARY = 's3cr3t/+ é"\\\n'


def emitted(value: object) -> list[str]:
    shown = [str(value), repr(value), f"{value}", f"{value!s:>10}", f"{value} {value!r}"]
    shown += [
        json.dumps(value),
        json.dumps({"k": [value]}),
        orjson.dumps(value).decode(),
        orjson.dumps({"k": value}).decode(),
    ]
    shown += [pickle.dumps(value).decode("latin-1"), str([value]), str({value: value}), "".join([str(value)])]
    shown += [str(value).upper(), str(value) + "x", str(copy.deepcopy({"k": value}))]
    return shown


def test_a_secret_shows_itself_nowhere_and_reveals_itself_on_demand() -> None:
    secret = Secret("hunter2hunter2")
    assert secret.reveal() == "hunter2hunter2"
    assert not [text for text in emitted(secret) if "hunter2" in text]
    assert "***" in str(secret)
    assert secret.reveal() not in repr(ToolContext(secrets={"a": secret}))
    logging.getLogger("x").debug("%s", secret)


def test_secrets_compare_by_value_and_only_with_each_other() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("***") != "***"
    assert Secret(Secret("a")).reveal() == "a"
    assert not Secret("")
    assert copy.copy(Secret("a")).reveal() == copy.deepcopy(Secret("a")).reveal() == "a"
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "***"


def test_a_model_with_a_secret_dumps_it_masked() -> None:
    class Settings(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        token: Any

    assert "hunter2" not in Settings(token=Secret("hunter2")).model_dump_json()


def test_a_plain_string_among_the_secrets_is_refused() -> None:
    for field in ("secrets", "upstream_credentials"):
        with pytest.raises(DefinitionError, match="The secret 'token' is a plain str: wrap it"):
            ToolContext(**{field: {"token": "abc"}})  # type: ignore[arg-type]


# ---------------------------------------------------------------- what leaves

printable = st.characters(exclude_categories=("C", "Z")) | st.just(" ")
values = st.text(printable, min_size=8, max_size=30).filter(
    lambda text: len(text.strip()) >= 6 and text not in "[redacted]"
)
around = st.binary(max_size=7)


@given(value=values, before=around, after=around)
@example(value=CANARY, before=b"", after=b"")
@example(value="ÿÿÿÿÿÿÿÿ", before=b"a", after=b"bc")
def test_no_spelling_of_a_secret_survives(value: str, before: bytes, after: bytes) -> None:
    redactor = Redactor([Secret(value)])
    framed = before + value.encode() + after
    spellings = [
        value, json.dumps(value), json.dumps(value, ensure_ascii=False), orjson.dumps(value).decode(), quote(value),
        quote(value, safe=""), quote_plus(value), f"https://{quote(value)}@host/",
    ]  # fmt: skip
    for spelling in spellings:
        for text in (spelling, f"a{spelling}b", json.dumps({"k": spelling})):
            assert value not in redactor.text(text)
            assert spelling.strip('"') not in redactor.text(f"{spelling}x")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        cleaned = redactor.text(encode(framed).decode())
        assert value.encode() not in lenient_decode(cleaned), (encode, cleaned)


def utf_16(char: str) -> list[str]:
    return [char.encode("utf-16-be").hex()[at : at + 4] for at in range(0, len(char.encode("utf-16-be")) * 2, 4)]


ESCAPES: dict[str, Callable[[str], str]] = {
    "PHP": lambda char: "\\/" if char == "/" else char,
    ".NET": lambda char: f"\\u{ord(char):04X}" if char in "+<>&'\"`" else char,
    "Go": lambda char: f"\\u{ord(char):04x}" if char in "<>&" else char,
    "JSON": lambda char: "".join(f"\\u{unit}" for unit in utf_16(char)),
    "JSON in JSON": lambda char: "".join(f"\\\\u{unit}" for unit in utf_16(char)),
    "JSON in JSON in JSON": lambda char: "\\\\\\/" if char == "/" else char,
    "URL": lambda char: f"%{ord(char):02x}" if char.isascii() and char not in "-_.~" else char,
    "URL in URL": lambda char: f"%25{ord(char):02X}" if char in "/+= " else char,
    "HTML": lambda char: {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}.get(char, char),
    "XML": lambda char: "".join(f"&#{int(unit, 16)};" for unit in utf_16(char)),
    "XML, hexadecimal": lambda char: "".join(f"&#x0{unit};" for unit in utf_16(char)),
}
AWKWARD = (
    "abc/def+ghi==",
    "p&ss<w>o'rd`",
    "%41%2F literal",
    "\\u0041 literal",
    "tab\tand \U0001f600 é",
    "漢字漢字漢字",
)


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_secret_is_found_whichever_of_its_characters_are_escapes(escape: str) -> None:
    others = Secret("another one"), Secret("xyz")
    for value in AWKWARD:
        redactor = Redactor([Secret(value), *others])
        for every in (1, 2):
            written = "".join(ESCAPES[escape](char) if at % every == 0 else char for at, char in enumerate(value))
            framed = f"\\n&amp; {written} {written}%20\\/"
            assert redactor.finds(framed), (value, written)
            assert redactor.text(framed) == "\\n&amp; [redacted] [redacted]%20\\/", (value, written)
    assert not Redactor(others).finds("an\\u006fther two &amp; %41 xyz")
    assert not Redactor([]).finds("\\u0041")
    assert Redactor([]).text("\\u0041") == "\\u0041"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_secret_is_found_in_bytes_of_any_encoding_of_the_web(encoding: str) -> None:
    for value in AWKWARD:
        raw = b"\x89PNG\0" + value.encode(encoding) + b"\0\xff"
        assert Redactor([Secret(value)]).finds(raw.decode("latin-1")), value


@pytest.mark.parametrize(
    "text", ["\\" * 100_000, "%25" * 30_000, "&amp;" * 20_000, "&" + "amp;" * 20_000, "%" + "25" * 40_000]
)
def test_looking_for_escapes_takes_a_time_in_proportion_to_the_text(text: str) -> None:
    redactor = Redactor([Secret("abc/def+%&=="), Secret("\\u0041amp;25")])
    many = "abc\\/def+%&==" * 4_000
    with within(1.0, CPU):
        redactor.text(text)
        assert redactor.text(many) == "[redacted]" * 4_000


def lenient_decode(text: str) -> bytes:
    """Return what base64 a reader could still make of the text, from every offset."""
    found = b""
    for part in text.split("[redacted]"):
        usable = part.replace("-", "+").replace("_", "/").rstrip("=")
        for offset in range(4):
            piece = usable[offset:]
            piece = piece[: len(piece) - (len(piece) % 4 == 1)]
            try:
                found += base64.b64decode(piece + "=" * (-len(piece) % 4)) + b"\0"
            except ValueError:
                continue
    return found


def holding(value: str) -> ToolContext:
    return ToolContext(budget=None, secrets={"token": Secret(value)}, upstream_credentials={"crm": Secret(CRM)})


def leaks(value: str, emitted: str) -> bool:
    forms = [value, json.dumps(value)[1:-1], quote(value), base64.b64encode(value.encode()).decode().rstrip("=")[:-2]]
    return any(form in emitted for form in forms)


@pytest.mark.parametrize(
    "shape",
    [
        lambda s: s,
        lambda s: {"a": [s, {"b": f"x{s}y"}]},
        lambda s: {s: 1},
        lambda s: {"encoded": base64.b64encode(f"user:{s}".encode()).decode()},
        lambda s: f"https://api/?token={quote_plus(s)}",
        lambda s: json.dumps({"t": s}),
        lambda s: s.encode(),
        lambda s: ImageContent(b"\x89PNG" + s.encode()),
        lambda s: ResourceContent("a://b", text=s),
        lambda s: ResourceContent(f"a://{s}", blob=s.encode()),
        lambda s: ResourceLink(f"https://h/{s}", "a", description=s),
    ],
)
async def test_a_result_leaves_without_the_secret(shape: Any) -> None:
    value = "sk-live-abcdef-0123456789"

    async def work(ctx: ToolContext, args: Any) -> Any:
        return shape(ctx.secrets["token"].reveal())

    recorder = Recorder()
    result = await one_tool(work).view(holding(value)).call("echo", callbacks=recorder)
    assert kind_of(result) == "ok"
    assert not leaks(value, repr(result) + repr(recorder.events))
    assert "[redacted]" in repr(result)


async def test_errors_logs_and_upstream_credentials_are_cleaned_too(caplog: pytest.LogCaptureFixture) -> None:
    value = "sk-live-abcdef-0123456789"

    async def typed(ctx: Any, args: Any) -> None:
        token = ctx.upstream_credentials["crm"].reveal()
        raise CallError("upstream_auth", f"401 for {token}", hint=f"use {token}", details={"h": [token], token: 1})

    async def bug(ctx: Any, args: Any) -> None:
        raise ValueError(f"bad token {ctx.secrets['token'].reveal()}")

    for work in (typed, bug):
        recorder = Recorder()
        result = await one_tool(work).view(holding(value)).call("echo", callbacks=recorder)
        assert result.is_error
        said = repr(result) + repr(recorder.events) + caplog.text
        assert not leaks(value, said)
        assert not leaks(CRM, said)


async def test_the_refusal_of_an_argument_that_is_a_secret_does_not_repeat_it() -> None:
    value = "sk-live-abcdef-0123456789"
    view = one_tool(properties={"n": {"type": "integer"}}).view(holding(value))
    result = await view.call("echo", {"n": value})
    assert kind_of(result) == "invalid_arguments"
    assert not leaks(value, repr(result))


async def test_secrets_of_the_catalog_are_looked_for_in_every_call() -> None:
    async def work(ctx: Any, args: Any) -> str:
        return "key=abcdef-0123"

    catalog = one_tool(work)
    catalog.add_secrets(Secret("abcdef-0123"))
    assert (await catalog.view(ToolContext()).call("echo")).text == "key=[redacted]"


async def test_the_text_of_an_unknown_name_that_is_a_secret_is_cleaned() -> None:
    value = "sk-live-abcdef-0123456789"
    result = await Catalog().view(holding(value)).call(value)
    assert not leaks(value, repr(result))


async def test_progress_and_sub_agent_events_are_cleaned() -> None:
    value = "sk-live-abcdef-0123456789"

    async def work(ctx: CallContext, args: Any) -> str:
        token = ctx.secrets["token"].reveal()
        ctx.progress(0.5, f"using {token}")
        ctx.emit({"header": [token]})
        async with ctx.sub_agent("researcher") as sub:
            await sub.chunk(f"I use {token}")
            await sub.tool_call("search", {"key": token})
        return "done"

    recorder = Recorder()
    await one_tool(work).view(holding(value)).call("echo", callbacks=recorder)
    assert not leaks(value, repr(recorder.events))


async def test_the_log_of_a_tool_is_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    value = "sk-live-abcdef-0123456789"

    async def work(ctx: Any, args: Any) -> str:
        ctx.log(f"using {ctx.secrets['token'].reveal()}", level=logging.WARNING)
        return "done"

    await one_tool(work).view(holding(value)).call("echo")
    assert not leaks(value, caplog.text)


async def test_short_values_and_ordinary_text_are_left_alone() -> None:
    async def work(ctx: Any, args: Any) -> Mapping[str, Any]:
        return {"a": "on and on", "n": 12, "x": None}

    ctx = ToolContext(secrets={"flag": Secret("on"), "key": Secret("abcdef-0123")})
    result = await one_tool(work).view(ctx).call("echo")
    assert result.structured == {"a": "on and on", "n": 12, "x": None}


async def test_a_hundred_callers_with_their_own_secrets_stay_apart() -> None:
    async def work(ctx: ToolContext, args: Any) -> str:
        return f"{args['other']} {ctx.secrets['token'].reveal()}"

    catalog = one_tool(work)

    async def one(number: int) -> str:
        ctx = replace(holding(f"token-{number:04}-x"), request_id=str(number))
        return (await catalog.view(ctx).call("echo", {"other": f"token-{number + 1:04}-x"})).text

    texts = await asyncio.gather(*map(one, range(100)))
    assert texts == [f"token-{number + 1:04}-x [redacted]" for number in range(100)]


async def test_a_secret_too_short_to_be_told_in_base64_is_still_removed_as_text() -> None:
    async def work(ctx: Any, args: Any) -> str:
        return "pin=7Q2x, YWJj"

    result = await one_tool(work).view(ToolContext(secrets={"pin": Secret("7Q2x")})).call("echo")
    assert result.text == "pin=[redacted], YWJj"
