"""Evidence: collects signs of why a server does not work, and words them for the operator."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import islice

from pegboard.model.caller import Caller
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.mcp.server_settings import ServerSettings

MCP_MESSAGE_BYTES = 1_000  # bytes of an error or progress message that is passed on
MCP_LAST_LINES = 10  # lines of the stderr of a failed program, within that size
MCP_ANSWER_SHOWN_BYTES = 200  # bytes shown of a line or response that is not a message


class Evidence:
    """The observations of one connection: the end of stderr, and lines and responses that are not messages.

    A program's output may be about its calls. So it is shown to the operator, and to a caller only if nobody else used
    this connection; `ending` is shown to everybody.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.stderr: Callable[[], str] = str
        self.ending = ""
        self._first_bad, self._bad_lines = b"", 0
        self._odd_answer, self._is_failing = "", False
        self.has_session = False
        self._callers: set[Caller] = set()

    def on_call(self, caller: Caller) -> None:
        """Record the caller of a call at the server."""
        # Two are enough; the set must not grow without end.
        if len(self._callers) < 2:
            self._callers.add(caller)

    # ---- programs

    def on_bad_line(self, line: bytes) -> None:
        """Record a line on stdout that is not a message."""
        if line.strip():
            self._first_bad = self._first_bad or line
            self._bad_lines += 1

    def on_message(self) -> None:
        """Record a message: stdout before it does not explain later failures."""
        self._first_bad, self._bad_lines = b"", 0

    def on_exit(self, status: int | None) -> None:
        """Record the exit of the program; `None` if it still runs but closed its stdout."""
        if status is None:
            self.ending = "its program closed its stdout"
        elif status < 0:
            self.ending = f"its program was ended by {_signal_name(-status)}"
        else:
            self.ending = f"its program ended with exit code {status}"

    def words_for(self, caller: Caller | None) -> str:
        """Return the program's last output, if this caller may see it; `None` means a question about its state."""
        return self.words() if self._callers <= ({caller} if caller is not None else set()) else ""

    def words(self) -> str:
        """Return the program's last output, as one or two sentences that begin with a space; empty without output."""
        return "".join(f" {sentence}" for sentence in self._sentences())

    def words_for_log(self) -> str:
        """Return the same for a program that exited by itself, if `words_for` withholds it from callers."""
        return self.words() if self.ending and self._callers else ""

    def _sentences(self) -> Iterator[str]:
        if self._first_bad:
            line = self._shown(self._first_bad.decode("utf-8", "replace"), MCP_ANSWER_SHOWN_BYTES)
            others = f" and {self._bad_lines - 1} more lines" if self._bad_lines > 1 else ""
            yield f"Its stdout, which is for messages of the protocol alone, has {line!r}{others}."
        lines = self._plain(self.stderr()).splitlines()
        last = list(islice((line.rstrip() for line in reversed(lines) if line.strip()), MCP_LAST_LINES))
        if last:
            yield f"The last lines of its stderr, which are data: {_end_of(' | '.join(reversed(last)))!r}."

    # ---- HTTP

    def on_odd_answer(self, status: int, media: str, body: bytes) -> None:
        """Record an HTTP response that no MCP server sends."""
        begins = self._shown(body.decode("utf-8", "replace").strip(), MCP_ANSWER_SHOWN_BYTES)
        kind = f"{status} {media}".strip()
        self._odd_answer = f"{kind}, which begins {begins!r}" if begins else f"{kind} without content"
        self._is_failing = status >= 500

    def forget_answer(self) -> None:
        """Forget the response, because another transport is tried now."""
        self._odd_answer = ""

    @property
    def has_odd_answer(self) -> bool:
        """Whether there was such a response."""
        return bool(self._odd_answer)

    def not_mcp(self, otherwise: str) -> str:
        """Return the sentences about the response, or other signs that this is not an MCP server."""
        if self._odd_answer and self._is_failing:
            text = f"The MCP server {self._settings.name!r} failed instead of opening a session: {self._odd_answer}."
            return f"{text} See what its own log says."
        return (
            f"The address of {self._settings.name!r} answered, but not as an MCP server: "
            f"{self._odd_answer or otherwise}. See that its `url` is the address of the MCP endpoint, with its path."
        )

    # ---- both

    def _shown(self, text: str, max_bytes: int) -> str:
        return cleaned(" ".join(self._plain(text).split()), max_bytes=max_bytes)

    def _plain(self, text: str) -> str:
        return self._settings.without_secrets(text)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end_of(text: str) -> str:
    """Return the end of a text, within the size that is passed on."""
    raw = text.encode()
    return text if len(raw) <= MCP_MESSAGE_BYTES else "…" + raw[3 - MCP_MESSAGE_BYTES :].decode("utf-8", "ignore")
