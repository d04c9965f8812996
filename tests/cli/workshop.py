"""The functions behind the tools of the command line's tests."""

from pegboard import ToolContext


def count_words(text: str, unique: bool = False) -> int:
    words = text.split()
    return len(set(words)) if unique else len(words)


def echo(**arguments: object) -> dict[str, object]:
    return arguments


def delete_page(page: str) -> str:
    return f"deleted {page}"


def shout() -> str:
    return "\x1b]0;pwned\x07\x1b[31m[red]loud[/red]\x9b2J\u202egnp.exe\r\nsecond line"


def explode() -> str:
    raise RuntimeError("boom")


def chatter() -> str:
    print("chatter")
    return "answer"


def is_boss(ctx: ToolContext) -> bool:
    """Tell whether the caller has the role `boss`."""
    return "boss" in ctx.roles
