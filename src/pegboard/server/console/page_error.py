"""PageError: a page that cannot be shown, in words for the person."""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.server.console.visit import Visit


class PageError(Exception):
    """A page that cannot be shown: an HTTP status, a title, and sentences for the person."""

    def __init__(self, status: int, title: str, text: str, *, retry_after_s: int = 0) -> None:
        super().__init__(text)
        self.status, self.title, self.text, self.retry_after_s = status, title, text, retry_after_s


def no_such_page() -> PageError:
    """Return the error for an unknown address."""
    return PageError(404, "Not found", "There is no such page. The board shows what there is.")


def busy() -> PageError:
    """Return the error of a server that has too many open requests."""
    return PageError(503, "Busy", "The server is busy. Try again in a moment.", retry_after_s=1)


def only_operators(visit: Visit) -> None:
    """Refuse everybody but operators, as if there were no such page.

    Raises:
        PageError: the person is not an operator.
    """
    if not visit.is_operator:
        raise no_such_page()


def no_such_profile(name: str, profiles: Sequence[str], *, is_operator: bool) -> PageError:
    """Return the page for a profile that this person cannot choose, with those that they can."""
    if profiles:
        more = f"Choose one of these on the board: {', '.join(profiles)}."
    elif is_operator:
        more = "This server has no profiles: every caller sees all its tools. Leave `profile` out of the address."
    else:
        more = "Your credential gives no profile by name. Leave `profile` out of the address."
    return PageError(404, "Not found", f"There is no profile {name!r}. {more}")
