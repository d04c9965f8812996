"""Records: copied with changes, never changed in place."""

import dataclasses
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pegboard
from pegboard import Policy, ToolContext, replace
from pegboard.model.document import NewDocument
from pegboard.model.record import lazy_property
from pegboard.model.request import Attachment


@dataclass(frozen=True, kw_only=True)
class ShopContext(ToolContext):
    shop: str = "main"


def test_replace_copies_records_plain_dataclasses_and_contexts_with_changes() -> None:
    policy = Policy(allow=("docs.*",))
    assert replace(policy, deny=("docs.delete",)) == Policy(allow=("docs.*",), deny=("docs.delete",))
    assert policy.deny == ()
    moved = replace(ShopContext(user_id="ann"), shop="second", space_id="s1")
    assert (moved.user_id, moved.space_id, moved.shop) == ("ann", "s1", "second")


def test_a_record_refuses_a_change_in_place() -> None:
    policy: Any = Policy()
    with pytest.raises(AttributeError):
        policy.allow = ("*",)


def test_a_lazy_property_is_computed_once_for_each_record_and_found_on_the_class() -> None:
    computed = list[int]()

    class Area:
        def __init__(self, side: int) -> None:
            self.side = side

        @lazy_property
        def size(self) -> int:
            """The area."""
            computed.append(self.side)
            return self.side**2

    two, three = Area(2), Area(3)
    assert [two.size, two.size, three.size] == [4, 4, 9]
    assert computed == [2, 3]
    assert Area.size.__doc__ == "The area."


def test_an_attachment_shows_its_size_and_not_its_content() -> None:
    assert repr(Attachment(b"secret")) == "Attachment(6 bytes)"


@pytest.mark.parametrize(
    ("text", "error", "is_empty"), [("  \n", "", True), ("words", "", False), ("", "broken", False)]
)
def test_a_document_without_text_is_empty_unless_it_could_not_be_read(text: str, error: str, is_empty: bool) -> None:
    document = NewDocument(path="a.pdf", mime="application/pdf", size_bytes=1, checksum="c", text=text, error=error)
    assert document.is_empty is is_empty


CANARY = "c4n4ry-0042"
FIELD = re.compile(r"^    (?:headers|env|keys?): ", re.MULTILINE)
NAMES_ONLY = {"Config.env", "ConfigFile.env"}  # globs over names of variables


def records_with_credentials() -> dict[str, type]:
    """Return every record with a field for headers, environment variables or keys in bytes, by class and field."""
    root = Path(pegboard.__file__).parent
    found: dict[str, type] = {}
    for path in root.rglob("*.py"):
        if not FIELD.search(path.read_text(encoding="utf-8")):
            continue
        module = importlib.import_module(".".join(("pegboard", *path.relative_to(root).with_suffix("").parts)))
        for record in vars(module).values():
            is_record = isinstance(record, type) and (
                issubclass(record, msgspec.Struct) or dataclasses.is_dataclass(record)
            )
            if is_record and record.__module__ == module.__name__:
                for name, annotation in record.__annotations__.items():
                    if name in ("headers", "env") or (name in ("key", "keys") and "bytes" in str(annotation)):
                        found[f"{record.__qualname__}.{name}"] = record
    return {name: record for name, record in found.items() if name not in NAMES_ONLY}


def test_no_record_shows_headers_variables_or_keys_in_its_repr() -> None:
    records = records_with_credentials()
    assert {"WebhookSettings.headers", "Response.headers", "AppOptions.keys", "ServerSettings.env"} <= records.keys()
    shown: list[str] = []
    for field, record in records.items():
        name = field.rpartition(".")[2]
        fields = record.__struct_fields__ if issubclass(record, msgspec.Struct) else record.__dataclass_fields__
        values = {each: CANARY if each == name else None for each in fields}
        instance: Any
        if issubclass(record, msgspec.Struct):
            instance = record(**values)
        else:
            instance = object.__new__(record)
            for each, value in values.items():
                object.__setattr__(instance, each, value)
        if CANARY in repr(instance):
            shown.append(field)
    assert shown == []
