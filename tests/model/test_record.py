"""Records: copied with changes, never changed in place."""

from dataclasses import dataclass
from typing import Any

import pytest

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
