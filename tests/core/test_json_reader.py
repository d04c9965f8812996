"""JSON reader: whose a message is that cannot be taken."""

import json
from typing import Any

import pytest
from hypothesis import example, given

from pegboard.core.json_reader import (
    TooManyValuesError,
    envelope_of,
    has_more_values,
    parse_json,
    quickly_read,
    read_answer,
    read_message,
)
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError
from pegboard.model.record import replace
from tests.core.test_schema import json_values
from tests.timing import CPU, within


@pytest.mark.parametrize(
    ("refused", "envelope"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"a","params":NaN}', (1, False)),
        (b' { "id" : "x y" , "result" : {"a":1,"a":"}"} , "jsonrpc":"2.0"}', ("x y", True)),
        (b'{"jsonrpc":"2.0","result":{"id":5,"a":"\\"}"},"id":2}\r\n', (2, True)),
        (b'{"error":{},"jsonrpc":"2.0","id":-3}', (-3, True)),
        (b'{"method":"a","params":{"id":5},"jsonrpc":"2.0","id":"7"}', ("7", False)),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":', None),
        (b'{"method":"a","params":{"a":1,"id":2}', None),
        (b'{"method":"a","params":{"id":2}}', None),
        (b'{"jsonrpc":"2.0","id":01,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":"a\\"b","result":{}}', None),
        (b'x{"jsonrpc":"2.0","id":1,"result":{}}', None),
        (b'x{"result":{},"jsonrpc":"2.0","id":1}', None),
        (b'{"jsonrpc":"2.0","id":"\xff","result":{}}', None),
        (b"", None),
    ],
)
def test_a_refused_message_is_known_by_its_first_or_last_words_or_not_at_all(refused: bytes, envelope: Any) -> None:
    known = envelope_of(refused)
    assert envelope == (None if known is None else (known.id, known.is_answer))


def test_a_refused_message_of_any_size_is_known_at_once() -> None:
    for filling in (
        b'{"a":' * 400_000,
        b'{"{":' * 400_000,
        b'"' * 2_000_000,
        b"\\" * 2_000_000,
        b'{"id":1,' * 250_000,
        b" " * 2_000_000,
    ):
        for refused in (b'{"id":1,"result":' + filling, b'{"result":' + filling + b',"id":1}', filling):
            with within(0.05, CPU):
                envelope_of(refused)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"b":[1.5,true,null],"c":{"d":"e"}}',
        b'{"a": 1, "b": [1.5, true]}',
        b'{"a":"\xc3\xa9 : {\\n"}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":123456789012345678901234567890}',
        b'{"a":1.0,"b":1e5,"c":-0,"d":18446744073709551615}',
        b'{"a":"\\u0000"}',
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b"[1,2]",
        b"7",
        b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(1_500)) + b"}",
        b'{"a":"' + b":" * 2_000 + b'"}',
    ],
)
def test_what_is_read_quickly_is_what_the_careful_reader_reads(raw: bytes) -> None:
    quick = quickly_read(raw)
    try:
        careful = parse_json(raw)
    except CallError:
        assert quick is None
    else:
        assert quick is None or repr(quick) == repr(careful)


def values_in(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, inner))


@given(json_values)
@example(["x"])
@example([{"a": ""}, ["b"]])
def test_the_values_of_a_text_are_counted_without_reading_it(value: Any) -> None:
    written, count = json.dumps(value).encode(), values_in(value)
    assert (has_more_values(written, count - 1), has_more_values(written, count)) == (True, False)


def test_values_are_counted_in_little_time_whatever_they_are() -> None:
    for unit in (b"[]", b'""', b'"\\"[{,"', b"1", b"\\", b'"a'):
        with within(0.1, CPU):
            has_more_values(b"[" + b",".join([unit] * 400_000) + b"]", 150_000)


@pytest.mark.parametrize(
    ("answer", "bound"), [(b"[1,2,3]", "answer_values"), (b'[[],{"a":[]}]', "answer_containers")], ids=str
)
def test_an_answer_of_too_many_values_is_refused_by_the_name_of_its_bound(answer: bytes, bound: str) -> None:
    assert read_answer(answer) == json.loads(answer)
    with pytest.raises(TooManyValuesError, match=f"more than 3 .*`{bound}`"):
        read_answer(answer, bounds=replace(DEFAULT_BOUNDS, **{bound: 3}))


@pytest.mark.parametrize("bound", ["json_values", "answer_containers"])
def test_a_message_of_too_many_values_names_the_limit(bound: str) -> None:
    message = b'{"result": [[], [], []]}'
    assert read_message(message, bounds=DEFAULT_BOUNDS) == {"result": [[], [], []]}
    with pytest.raises(TooManyValuesError, match=rf"more than 3 .*\(`{bound}`\)"):
        read_message(message, bounds=replace(DEFAULT_BOUNDS, **{bound: 3}))
    with pytest.raises(ValueError, match="occurs twice"):
        read_message(b'{"a": 1, "a": 2}', bounds=DEFAULT_BOUNDS)


@pytest.mark.parametrize("levels", [199, 200, 201, 254, 255, 900])
def test_an_answer_nested_deeper_than_it_could_be_written_again_is_read(levels: int) -> None:
    text = b"[" * levels + b"]" * levels
    value = read_answer(text)
    for _ in range(levels - 1):
        assert isinstance(value, list)
        (value,) = value
    assert value == []
