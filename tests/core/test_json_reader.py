"""JSON reader: whose a message is that cannot be taken."""

from typing import Any

import pytest

from pegboard.core.json_reader import envelope_of
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
    for filling in (b'{"a":' * 400_000, b'"' * 2_000_000, b"\\" * 2_000_000, b'{"id":1,' * 250_000, b" " * 2_000_000):
        for refused in (b'{"id":1,"result":' + filling, b'{"result":' + filling + b',"id":1}', filling):
            with within(0.05, CPU):
                envelope_of(refused)
