"""Definition redaction: what lists show of a tool has no secret, in whichever field it is kept."""

from pegboard.core.definition_redaction import DefinitionRedactor
from pegboard.model.secret import Secret
from pegboard.model.tool import OfferedTitles, ToolEntry, ToolSpec


def test_the_titles_and_the_exact_schema_of_a_server_lose_their_secrets_too() -> None:
    redactor = DefinitionRedactor([Secret("hunter2-token")])
    exact = {"type": "object", "title": "with hunter2-token", "additionalProperties": False}
    entry = ToolEntry(spec=ToolSpec(name="t"), exact_output=exact, offered=OfferedTitles("A hunter2-token tool", None))
    cleaned = redactor.entry(entry)
    assert "hunter2-token" not in str(cleaned)
    assert cleaned.exact_output == {**exact, "title": "with [redacted]"}
    assert cleaned.offered == OfferedTitles("A [redacted] tool", None)
    plain = ToolEntry(spec=ToolSpec(name="t"), exact_output={"type": "object"}, offered=OfferedTitles("A tool", None))
    assert redactor.entry(plain) is plain
