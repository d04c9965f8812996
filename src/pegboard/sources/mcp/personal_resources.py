"""Personal resources: the resources, prompts and completions of each person's own lists at one server."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pegboard.connections.connection_records import Person, person_of
from pegboard.core.names import fold, shortened
from pegboard.model.context import ToolContext
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.sources.mcp.upstream_resources import OfferedItem

if TYPE_CHECKING:
    from pegboard.model.caller import Caller

PERSONAL_RESOURCES = 5_000  # entries of one server, of all persons together


class IsOfferedToCaller:
    """The condition of one item: the caller's own lists have it."""

    def __init__(self, source: str, digest: str, offers: Callable[[Caller, str], bool]) -> None:
        self._source, self._digest, self._offers = source, digest, offers

    def __call__(self, ctx: ToolContext) -> bool:
        return self._offers(ctx.caller, self._digest)

    def __repr__(self) -> str:
        return f"offered to the caller's account at {self._source}"


class PersonalResources:
    """What the server offers to each person, besides tools. Equal items are one entry, each with its condition.

    Two persons may be offered different items with one name. So an entry has a tail after its name, while callers see
    the name alone; a rule that denies the name denies all of them.

    Args:
        source: the name of the server.
        most: how many entries there may be; the lists that came first are forgotten for those that come later.
    """

    def __init__(self, source: str, *, most: int = PERSONAL_RESOURCES) -> None:
        self._source, self._most = source, most
        self._digests: OrderedDict[Person, frozenset[str]] = OrderedDict()
        self._entries: dict[str, tuple[ToolEntry, ...]] = {}
        self._users: Counter[str] = Counter()
        self._all: Sequence[ToolEntry] | None = ()

    def knows(self, person: Person) -> bool:
        """Tell whether a person's lists are known."""
        return person in self._digests

    def offers(self, caller: Caller, digest: str) -> bool:
        """Tell whether a caller's own lists have an item."""
        person = person_of(caller)
        return person is not None and digest in self._digests.get(person, ())

    def entries(self) -> Sequence[ToolEntry]:
        """Return the entries of all persons."""
        if self._all is None:
            by_name = sorted(self._entries.values(), key=lambda entries: entries[0].qualified_id)
            self._all = tuple([entry for entries in by_name for entry in entries])
        return self._all

    def remember(self, person: Person, items: Sequence[OfferedItem]) -> bool:
        """Replace a person's lists; tell whether that changes anything."""
        digests = frozenset(item.digest for item in items)
        if self._digests.get(person) == digests:
            self._digests.move_to_end(person)
            return False
        self.forget(person)
        self._digests[person] = digests
        for item in items:
            self._users[item.digest] += 1
            if item.digest not in self._entries:
                self._entries[item.digest] = tuple([self._entry(entry, item.digest) for entry in item.entries])
        while len(self._digests) > 1 and sum(map(len, self._entries.values())) > self._most:
            self.forget(next(iter(self._digests)))
        self._all = None
        return True

    def forget(self, person: Person) -> bool:
        """Drop a person's lists; tell whether there were any."""
        digests = self._digests.pop(person, None)
        if digests is None:
            return False
        self._users.subtract(digests)
        for digest in digests:
            if self._users[digest] <= 0:
                del self._users[digest], self._entries[digest]
        self._all = None
        return True

    def clear(self) -> None:
        """Drop all lists."""
        for person in tuple(self._digests):
            self.forget(person)

    def _entry(self, entry: ToolEntry, digest: str) -> ToolEntry:
        listed, own = IsOfferedToCaller(self._source, digest, self.offers), entry.spec.available
        name = shortened(entry.spec.name, f"{entry.qualified_id}.{digest}")
        spec = replace(entry.spec, name=name, available=listed if own is None else {"all": [own, listed]})
        return replace(entry, spec=spec, denied_as=tuple(map(fold, entry.folded_names)))
