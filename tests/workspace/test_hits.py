"""A hit of a search can be understood by itself: its title, its headings, the header row of its table."""

from __future__ import annotations

from pathlib import Path

from tests.workspace.library import Library, files

ROWS = "\n".join(f"{number},client {number},{number * 7}" for number in range(400))
SHEET = "".join(f"| shelf {number} | {number} boxes |\n" for number in range(200))


async def test_a_hit_has_its_title_and_the_headings_above_it(library: Library) -> None:
    padding = "Nothing of interest is said in this line of the page.\n\n" * 40
    page = f"# Handbook\n\nWelcome.\n\n## Travel\n\n{padding}### Trains\n\n{padding}Seats are booked by zebras.\n"
    await library.add("s1", "handbook", {"rules.md": page}, title="The rules")
    [hit, *_] = (await library.call("search_documents", query="zebras"))["hits"]
    assert (hit["title"], hit["headings"]) == ("The rules", ["Handbook", "Travel", "Trains"])
    await library.add("s1", "handbook", {"plain.txt": "Plain giraffes."})
    [hit] = (await library.call("search_documents", query="giraffes"))["hits"]
    assert (hit["title"], "headings" in hit, "table_head" in hit) == ("plain", False, False)


async def test_a_row_is_found_by_the_header_of_its_table_and_shows_it(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "tables", {
        "orders.csv": f"\nid,customer,total\n{ROWS}\n",
        "store.md": f"# Store\n\n| place | content |\n|---|---|\n{SHEET}\nAfter the table.\n",
    })  # fmt: skip
    await library.take_in(folder)
    [hit, *_] = (await library.call("search_documents", query="customer 399 total"))["hits"]
    assert "client 399" in hit["text"]
    assert hit["table_head"] == "id,customer,total"
    [hit, *_] = (await library.call("search_documents", query="content of shelf 180"))["hits"]
    assert "shelf 180" in hit["text"]
    assert (hit["table_head"], hit["headings"]) == ("| place | content |", ["Store"])
    # The passage with the header row itself does not repeat it.
    hits = (await library.call("search_documents", query="shelf 1", limit=50))["hits"]
    assert [hit for hit in hits if "| place |" in hit["text"] and "table_head" in hit] == []


async def test_neighbours_are_the_text_before_and_after_and_never_of_another_document(library: Library) -> None:
    lines = [f"Line {number} is about the topic number {number}." for number in range(120)]
    text = "\n".join([*lines[:60], "Here are the zebras.", *lines[60:]])
    await library.add("s1", "handbook", {"a.txt": text, "b.txt": "Other text."})
    [hit] = (await library.call("search_documents", query="zebras", neighbours=1))["hits"]
    assert text[hit["start"] - len(hit["before"]) : hit["end"] + len(hit["after"])] == (
        hit["before"] + hit["text"] + hit["after"]
    )
    assert "Line" in hit["before"]
    assert "Line" in hit["after"]
    [hit] = (await library.call("search_documents", query="other", neighbours=3))["hits"]
    assert (hit["before"], hit["after"]) == ("", "")
    [hit] = (await library.call("search_documents", query="zebras"))["hits"]
    assert "before" not in hit
