"""Words of a question in several languages, names in several spellings, compounds, and mistyped words."""

from __future__ import annotations

import pytest

from pegboard import ToolContext
from tests.workspace.library import Library, in_space

GERMAN = {
    "recht.md": "Die Zugriffsrechte einer Datei werden mit diesem Befehl geändert, und nicht nur von dem Besitzer.",
    "platte.md": "Eine Dateisystemüberprüfung wird bei dem Start gemacht, wenn das Gerät nicht sauber war.",
    "haus.md": "Die Häuser in der Straße sind alt, und keiner weiß, wer sie für die Stadt gebaut hat.",
}
FRENCH = {"jours.md": "Les congés annuels sont demandés au responsable, et il les accorde dans les trois jours."}
ENGLISH = {
    "codes.md": "The pump WX-1077 replaces the WX-1076. Its timeout is tcp_fin_timeout in the file nsswitch.conf.",
    "paths.md": "The filesystem was mounted with 10,000 inodes by the HTTPServer of the cluster.",
}


async def first(library: Library, query: str, ctx: ToolContext | None = None) -> str | None:
    hits = (await library.call("search_documents", ctx, query=query))["hits"]
    return hits[0]["name"] if hits else None


@pytest.fixture
async def shelf(library: Library) -> Library:
    await library.add("s1", "handbook", {**GERMAN, **FRENCH, **ENGLISH})
    return library


@pytest.mark.parametrize(
    ("query", "name"),
    [
        # Inflected, in the language of the passage; and spelled without umlauts.
        ("Haus", "haus.md"),
        ("Strassen", "haus.md"),
        ("Haeuser", "haus.md"),
        ("Geraete", "platte.md"),
        ("Befehle", "recht.md"),
        ("geaendert", "recht.md"),
        ("congé annuel", "jours.md"),
        ("conges demandes", "jours.md"),
        # Compounds, by their parts and the other way round.
        ("Überprüfung des Dateisystems", "platte.md"),
        ("Rechte", "recht.md"),
        ("Rechte beim Zugriff auf eine Datei", "recht.md"),
        ("Dateibefehl", "recht.md"),
        # Names in every spelling.
        ("wx1077", "codes.md"),
        ("WX 1077", "codes.md"),
        ("wx-1077", "codes.md"),
        ("tcpFinTimeout", "codes.md"),
        ("TCP_FIN_TIMEOUT", "codes.md"),
        ("nsswitchconf", "codes.md"),
        ("file system", "paths.md"),
        ("http server", "paths.md"),
        ("10000 inodes", "paths.md"),
        # Mistyped.
        ("Zugrifsrechte", "recht.md"),
        ("Dateisystemüberprüfnug", "platte.md"),
        ("inoeds", "paths.md"),
    ],
)
async def test_a_passage_is_found_however_its_words_are_written(shelf: Library, query: str, name: str) -> None:
    assert await first(shelf, query) == name


async def test_a_slip_in_a_short_word_or_an_ending_is_undone_before_stemming(library: Library) -> None:
    pages = {
        "seq.md": "Afficher une suite de nombres dans le terminal.",
        "login.md": "The shells of the login are listed here.",
        "drift.md": "S'éloigner de la côte pour les trois jours.",
    }
    await library.add("s1", "handbook", pages)
    assert await first(library, "siute") == "seq.md"
    assert await first(library, "nombers") == "seq.md"
    assert await first(library, "shlels") == "login.md"
    hits = (await library.call("search_documents", query="loign"))["hits"]
    assert "login.md" in {hit["name"] for hit in hits}


async def test_a_rare_word_that_is_a_slip_of_a_frequent_one_finds_both(library: Library) -> None:
    days = {f"{number}.md": f"The day of rest, week {number}." for number in range(25)}
    await library.add("s1", "handbook", {**days, "typo.md": "A dya of work.", "motd.md": "The message of the day."})
    hits = (await library.call("search_documents", query="message of the dya", limit=5))["hits"]
    assert {hit["name"] for hit in hits[:2]} == {"motd.md", "typo.md"}


async def test_words_with_one_or_two_more_letters_are_no_compounds(library: Library) -> None:
    pages = {
        "long.md": "Wie lang die Leitung ist, steht auf dem Schild an der Tür und auch in der Akte.",
        "sound.md": "Der Klang der Glocke ist nicht weit zu hören, und sie wird auch nur an dem Sonntag geläutet.",
        "name.md": "Der Langname der Datei ist nicht in dem Verzeichnis, und er wird auch nicht gezeigt.",
    }
    await library.add("s1", "handbook", pages)
    hits = (await library.call("search_documents", query="lang"))["hits"]
    assert [hit["name"] for hit in hits] == ["long.md", "name.md"]


async def test_a_rare_compound_also_finds_passages_with_its_parts(library: Library) -> None:
    pages = {
        "exact.md": "Die Ressourcenbegrenzungen sind in der Datei, und nicht in dem Programm.",
        "parts.md": "Die Begrenzungen der Ressourcen eines Prozesses werden mit diesem Befehl gesetzt.",
    }
    await library.add("s1", "handbook", pages)
    for query in ("Ressourcenbegrenzungen", "Ressourcenbegrenzunge"):
        hits = (await library.call("search_documents", query=query))["hits"]
        assert [hit["name"] for hit in hits] == ["exact.md", "parts.md"]


async def test_another_code_is_no_misspelling(shelf: Library) -> None:
    answer = await shelf.call("search_documents", query="WX1079")
    # The series is found by its letters, and the answer does not say that this was meant.
    assert all("1077" in hit["text"] for hit in answer["hits"])
    assert (await shelf.call("search_documents", query="1079"))["hits"] == []


async def test_an_answer_says_which_words_no_passage_has(shelf: Library) -> None:
    answer = await shelf.call("search_documents", query="the clusetr of elephants")
    assert [hit["name"] for hit in answer["hits"]] == ["paths.md"]
    assert answer["note"] == (
        "No passage has 'clusetr'; passages with similar words are shown. "
        "No passage has 'elephants', or a similar word."
    )
    answer = await shelf.call("search_documents", query="zzyzx")
    assert (answer["hits"], answer["note"]) == (
        [],
        "No passage has a word of this question, or a similar one. Ask in the language of the documents, or look for a "
        "part of a word with grep_documents.",
    )
    assert "note" not in await shelf.call("search_documents", query="cluster")


async def test_scores_stay_between_0_and_1_however_a_word_is_found(shelf: Library) -> None:
    for query in ("wx-1077 wx1077 WX 1077", "Datei Dateisystem file-system", "Rechte Zugriff Rechte", "inoeds"):
        hits = (await shelf.call("search_documents", query=query))["hits"]
        assert hits
        assert all(0 < hit["score"] <= 1 for hit in hits)


async def test_words_of_other_spaces_correct_and_score_nothing(library: Library) -> None:
    await library.add("s1", "handbook", {"a.md": "The harbour is open, and the master of it is here."})
    before = await library.call("search_documents", query="harbour mastre")
    await library.add("s2", "handbook", {"b.md": "Der Hafenmeister und die Hafenrechte sind hier, und canary1 auch."})
    assert await library.call("search_documents", query="harbour mastre") == before
    for query in ("Hafen", "canarry", "Hafenmeistr"):
        answer = await library.call("search_documents", query=query)
        assert (answer["hits"], "similar words" in answer["note"]) == ([], False)


async def test_removed_documents_leave_no_spelling_behind(library: Library) -> None:
    await library.add("s1", "handbook", {"a.md": "Wages of the secretary.", "b.md": "Rules of the house."})
    await library.add("s1", "handbook", {"a.md": "Rules of the garden."})
    assert await first(library, "secretray") is None
    assert await first(library, "gardne") == "a.md"
    scope = library.store.operator_scope("s1")
    await library.store.remove_source(scope, "s1", "handbook")
    await library.add("s1", "other", {"c.md": "A lease."})
    assert await first(library, "gardne") is None
    listed = await library.store._database.read(
        lambda db: [*db.execute("select distinct term from spellings")], caller=None, scope=scope
    )
    assert [str(term) for (term,) in listed] == ["leas"]
    counted = await library.store._database.read(
        lambda db: [*db.execute("select language, passages from languages")], caller=None, scope=scope
    )
    assert [tuple(row) for row in counted] == [("english", 1)]


async def test_documents_of_an_earlier_pegboard_are_read_again_and_keep_their_vectors_numbers(shelf: Library) -> None:
    store, scope = shelf.store, shelf.store.operator_scope("s1")

    def age(db: object) -> list[tuple[int, ...]]:
        """Make the terms as they were before, in English and without spellings."""
        rows = [tuple(row) for row in db.execute("select n, start from chunks order by n")]  # type: ignore[attr-defined] - a connection of the store
        for statement in (
            "delete from spellings", "delete from languages", "update chunks set language = '', terms = 'x'",
            "delete from postings", "update documents set analysis = 0",
        ):  # fmt: skip
            db.execute(statement)  # type: ignore[attr-defined] - a connection of the store
        return rows

    before = await store._database.write(age, caller=None)
    store._is_current = False
    await first(shelf, "anything")
    assert await first(shelf, "Haus", in_space("s1")) == "haus.md"
    after = await store._database.read(
        lambda db: [tuple(row) for row in db.execute("select n, start from chunks order by n")],
        caller=None,
        scope=scope,
    )
    assert after == before
