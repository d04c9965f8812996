"""The discovery index: what it finds, for whom, and how sure it is."""

import json
import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.discovery.search.compared import Cosines
from pegboard.discovery.search.index import Hits, Index, ToolText
from tests.sizes import examples
from tests.timing import CPU, within

REQUESTS = Path(__file__).parents[2] / "bench" / "requests"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (REQUESTS / name).read_text(encoding="utf-8").splitlines()]


def tool_text(row: dict) -> ToolText:
    parameters = row["inputSchema"]["properties"]
    return ToolText(
        id=row["name"],
        name=row["name"].split("__", 1)[1],
        description=row["description"],
        namespace=row["server"],
        parameters=tuple((name, schema["description"]) for name, schema in parameters.items()),
    )


TEXTS = [tool_text(row) for row in rows("tools.jsonl")]
IDS = [text.id for text in TEXTS]
INDEX = Index.build(TEXTS)


def first(query: str, index: Index = INDEX, **options: object) -> str | None:
    hits = index.search(query, **options).hits  # type: ignore[arg-type]  # only what a test passes on
    return hits[0].id if hits else None


def is_matched(query: str, index: Index) -> bool:
    """Tell whether a tool has a word of the request."""
    return not index.search(query).near_namespaces


def index_of(**descriptions: str) -> Index:
    return Index.build(ToolText(id=name, name=name, description=text) for name, text in descriptions.items())


# ---- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("create issue", "github__createIssue"),
        ("createIssue", "github__createIssue"),
        ("create_issue", "github__createIssue"),
        ("CREATE ISSUES", "github__createIssue"),
        ("listing folders", "files__list_folders"),
        ("list directories", "files__list_folders"),
        ("rename a file", "files__moveFile"),
        ("watermark", "pdf__addWatermark"),
        ("horarios de trenes entre dos estaciones", "trenes__buscar_horarios"),
        ("busca el horario del tren", "trenes__buscar_horarios"),
        ("¿en qué estaciones para? lista de estacion", "trenes__listar_estaciones"),
        ("rechercher une oeuvre", "musee__rechercher_oeuvres"),
        ("搜索古诗词", "诗词__search_poems"),
        ("解释这首诗的含义", "诗词__explain_poem"),
        ("駅の出口を調べる", "乗換__station_info"),
        ("乗換経路を検索", "乗換__search_route"),
        ("server: github\ntool: create an issue", "github__createIssue"),
        ("wether forcast hourly", "weather__hourly_forecast"),
    ],
)
def test_request_finds_its_tool_first(query: str, found: str) -> None:
    assert first(query) == found


@pytest.mark.parametrize(
    ("described", "query"),
    [
        ("Ищет файлы по имени", "поиск файла по имени"),
        ("Αναζήτηση αρχείων στον δίσκο", "αναζήτηση αρχείου"),
        ("हिन्दी में समाचार खोजें", "समाचार खोज"),
        ("ค้นหาไฟล์ในโฟลเดอร์", "ค้นหาไฟล์"),
        ("폴더에서 파일을 검색합니다", "파일 검색"),
        ("البحث عن الملفات في المجلد", "البحث عن ملف"),
        ("חיפוש קבצים בתיקייה", "חיפוש קבצים"),
        ("Durchsucht die Ordner nach Dateien", "Datei im Ordner suchen"),
        ("Busca archivos en la carpeta", "buscar un archivo en carpetas"),
        ("Búsqueda de vídeos", "busqueda de videos"),
        ("Wyszukiwanie plików w katalogu", "wyszukiwania pliku"),
        ("Ｆｕｌｌ　ｗｉｄｔｈ　ｃｏｎｖｅｒｔｅｒ", "full width converter"),
        ("Reads the filesystem", "file system"),
        ("Reads the file system", "filesystem"),
        ("Searches YouTube", "youtube"),
        ("Searches GitHub", "Github"),
    ],
)
def test_any_language_and_spelling_is_searched(described: str, query: str) -> None:
    assert (
        first(query, index_of(a="Sends an electronic letter", b=described, c="Converts 3 units", d="天气预报")) == "b"
    )


def test_every_field_is_searched() -> None:
    field = {
        "name": ToolText(id="name", name="zebraStripes"),
        "title": ToolText(id="title", name="x", title="Giraffe neck"),
        "description": ToolText(id="description", name="x", description="Feeds the penguins."),
        "namespace": ToolText(id="namespace", name="x", namespace="walrus-house"),
        "parameter": ToolText(id="parameter", name="x", parameters=(("otter_count", "How many"),)),
        "parameter text": ToolText(id="parameter text", name="x", parameters=(("n", "Number of flamingos"),)),
        "example": ToolText(id="example", name="x", examples=("wash the elephant",)),
    }
    index = Index.build(field.values())
    asked = ["zebra stripe", "giraffe", "penguin", "walrus", "otters", "flamingo", "elephants"]
    assert [first(query, index) for query in asked] == list(field)


def test_one_tool_alone_is_found() -> None:
    assert first("create issue", index_of(createIssue="")) == "createIssue"
    assert first("weather", index_of(current_weather="")) == "current_weather"


def test_task_finds_a_tool_for_each_of_its_needs() -> None:
    task = "Merge the two PDF files, add a watermark and extract the text of the result."
    found = {hit.id for hit in INDEX.search(task, limit=5).hits}
    assert found >= {"pdf__merge_pdfs", "pdf__addWatermark", "pdf__extract_text"}


def test_shipped_requests_are_answered() -> None:
    shares: list[float] = []
    for row in rows("servable.jsonl"):
        found = [hit.id for hit in INDEX.search(row["query"], limit=5).hits]
        shares.append(sum(name in found for name in row["relevant"]) / len(row["relevant"]))
    assert sum(shares) / len(shares) >= 0.95


def test_scores_fall_from_at_most_one_and_limit_is_kept() -> None:
    hits = INDEX.search("read a file", limit=4).hits
    scores = [hit.score for hit in hits]
    assert len(hits) == 4
    assert all(1 >= before >= after > 0 for before, after in pairwise(scores))
    assert INDEX.search("read a file", limit=0).hits == ()


# ---- how sure it is --------------------------------------------------------------------------------------------------


def level(query: str, index: Index = INDEX, **options: object) -> str | None:
    hits = index.search(query, **options).hits  # type: ignore[arg-type]  # only what a test passes on
    return hits[0].confidence if hits else None


def share(levels: Iterable[str | None], wanted: str) -> float:
    got = list(levels)
    return got.count(wanted) / len(got)


def test_requests_that_no_tool_serves_are_hardly_ever_strong_and_servable_ones_hardly_ever_weak() -> None:
    unservable = [level(row["query"]) for row in rows("unservable.jsonl")]
    servable = [level(row["query"]) for row in rows("servable.jsonl")]
    assert len(unservable) >= 150
    assert share(unservable, "strong") <= 0.02
    assert share(unservable, "fair") <= 0.05
    assert share(servable, "weak") <= 0.02
    assert share(servable, "strong") >= 0.6
    assert None not in servable


def test_among_few_tools_what_none_of_them_serves_is_hardly_ever_strong() -> None:
    """Of the examples' tools, for which nothing was fitted: up to ten, the right ones not among them."""
    tools, asked = rows("example_tools.jsonl"), rows("example_requests.jsonl")
    index = Index.build(map(tool_text, tools))
    draw = random.Random(4)
    strong: list[bool] = []
    first: list[str | None] = []
    for row in asked:
        others = [tool["name"] for tool in tools if tool["name"] not in row["relevant"]]
        for size in (2, 5, 10):
            few = draw.sample(others, size)
            strong.append(level(row["query"], index, visible=few) == "strong")
            if row["relevant"]:
                answer = index.search(row["query"], visible=[*few[1:], *row["relevant"]])
                # Where no tool has a word of the request nothing puts one first.
                hits = () if answer.near_namespaces else answer.hits
                first += [hit.confidence for hit in hits[:1] if hit.id in row["relevant"]]
    assert len(strong) == 360
    assert strong.count(True) <= 18  # 5 %
    assert len(first) >= 120
    assert share(first, "weak") <= 0.1


def test_requests_whose_tools_are_hidden_are_hardly_ever_strong() -> None:
    """The same requests, and every namespace that serves them out of sight."""
    hidden: list[str | None] = []
    for row in rows("servable.jsonl"):
        namespaces = {name.split("__")[0] for name in row["relevant"]}
        visible = [id_ for id_ in IDS if id_.split("__")[0] not in namespaces]
        hidden.append(level(row["query"], visible=visible))
    assert share(hidden, "strong") <= 0.05


def test_many_requests_that_no_tool_serves_are_not_strong_together() -> None:
    draw = random.Random(9)
    queries = [row["query"] for row in rows("unservable.jsonl")]
    threes = [level(". ".join(draw.sample(queries, 3))) for _ in range(150)]
    assert share(threes, "strong") <= 0.05


@pytest.mark.parametrize("count", [3, 6, 12, 40, 81])
def test_the_words_mean_the_same_among_few_tools_and_many(count: int) -> None:
    kept = ["github__createIssue", "files__list_folders", *IDS[:count]]
    unservable = [level(row["query"], visible=kept) for row in rows("unservable.jsonl")]
    assert share(unservable, "strong") <= 0.02
    assert level("create an issue in a repository", visible=kept) == "strong"


def test_a_later_hit_is_no_surer_than_an_earlier_one() -> None:
    order = ("strong", "fair", "weak")
    for row in rows("servable.jsonl"):
        levels = [order.index(hit.confidence) for hit in INDEX.search(row["query"], limit=20).hits]
        assert levels == sorted(levels)


def test_evidence_never_makes_it_less_sure() -> None:
    """A tool that has one more of the words that are asked for is at least as sure as without it."""
    words = ["zebra", "stripes", "counter", "museum"]
    scores: list[float] = []
    for known in range(1, 5):
        index = index_of(a=" ".join(words[:known]), **{f"tool{n}": "Something else." for n in range(30)})
        scores.append(index.search(" ".join(words)).hits[0].score)
    assert scores == sorted(scores)
    assert scores[0] < 0.5 < scores[-1]


def test_a_namespace_that_is_about_one_word_of_a_request_is_evidence() -> None:
    """What most of its tools bear tells more than what one tool among as many others mentions."""

    def score(*names: str) -> float:
        dice = [ToolText(id=f"dice__{name}", name=name, namespace="dice") for name in names]
        others = [ToolText(id=f"n{n}__x", name=f"tool{n}", namespace=f"n{n}") for n in range(80)]
        return Index.build([*dice, *others]).search("a random guest for the party").hits[0].score

    about = score("random_a", "random_b", "random_c", "random_d")
    assert about > score("random_a", "roll_b", "roll_c", "roll_d")


def among_many(**described: str) -> Index:
    return index_of(**described, **{f"tool{n}": "Something else." for n in range(90)})


def test_one_slip_of_the_keyboard_is_forgiven_and_a_mere_likeness_less() -> None:
    index = among_many(translate="Says it in another language.")

    def score(query: str) -> float:
        return index.search(query).hits[0].score

    for slipped in ("tranlate", "transllate", "transalte", "tramslate"):
        assert first(f"{slipped} the greeting", index) == "translate", slipped
        assert score(f"{slipped} the greeting") > score("transfer the greeting"), slipped


FILES = Index.build(
    ToolText(id=name, name=name, description=description, namespace=name)
    for name, description in (
        ("read_file", "Read a file."),
        ("delete_file", "Delete a file."),
        ("get_weather", "Tell the weather of a city."),
        ("send_mail", "Send a message to somebody."),
        ("play_song", "Play a song."),
    )
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("raed fiel", "read_file"),
        ("delte teh flie", "delete_file"),
        ("sogn", "play_song"),
        ("eine Datei löschen", "delete_file"),
        ("lire un fichier", "read_file"),
        ("¿qué tiempo? clima de la ciudad", "get_weather"),
        ("inviare un messaggio", "send_mail"),
        ("tocar uma canção; canción", "play_song"),
        ("прочитать файл", "read_file"),
        ("北京天气", "get_weather"),
    ],
)
def test_slips_in_short_words_and_other_languages_are_guessed_and_never_sure(query: str, found: str) -> None:
    hit = FILES.search(query).hits[0]
    assert hit.id == found
    assert hit.confidence != "strong"


def test_a_word_that_some_tool_has_is_not_guessed_at() -> None:
    index = FILES.updated(changed=[ToolText(id="line", name="lire", namespace="line")])
    assert [hit.id for hit in index.search("lire").hits] == ["line"]
    assert [hit.id for hit in FILES.search("lire").hits] == ["read_file"]


def test_guesses_and_what_resembles_a_request_are_made_of_visible_tools_alone() -> None:
    alone = Index.build([ToolText(id="a", name="get_weather", description="Tell the weather of a city.")])
    assert FILES.search("lire fiel", visible=["get_weather"]).near_namespaces == ("get_weather",)
    assert alone.search("lire fiel").hits[0].score == FILES.search("lire fiel", visible=["get_weather"]).hits[0].score
    assert [hit.id for hit in FILES.search("fiel", visible=["read_file", "play_song"]).hits] == ["read_file"]


@pytest.mark.parametrize("query", ["x" * 4_000, "qwzx " * 800, "é" * 500, "ab\u0000cd efgh", "𝔣𝔦𝔢𝔩 " * 99])
def test_no_request_makes_guessing_long(query: str) -> None:
    with within(0.2, CPU):
        FILES.search(query)


def test_of_many_words_that_no_tool_has_the_first_are_compared_and_words_that_one_has_are_all_found() -> None:
    index = among_many(translate="Says it in another language.")
    nonsense = [f"{a}{b}xq{a}zw{b}" for a in "jkvq" for b in "jkvwxzqh"]
    few, many = (" ".join([*nonsense[:count], "tranlate"]) for count in (15, 16))
    assert not index.search(few).near_namespaces
    assert first(few, index) == "translate"
    assert index.search(many).near_namespaces, "of this one nobody looks what it is spelled nearly like"
    assert first(" ".join([*nonsense, "translate"]), index) == "translate"


def test_both_halves_of_a_compound_are_better_evidence_than_one_each_of_two_tools() -> None:
    both, apart = (
        index.search("filesystem of xylophones").hits[0].score
        for index in (among_many(a="Reads the file system"), among_many(a="Reads the file", b="Restarts the system"))
    )
    assert both > apart


def test_a_word_with_a_known_synonym_is_not_taken_for_a_misspelling() -> None:
    texts = [ToolText(id=name, name=name, namespace=f"of {name}") for name in ("train", "tail", "fail")]
    assert [hit.id for hit in Index.build(texts).search("rail").hits] == ["train"]


def test_a_word_of_asking_is_a_word_like_others_when_it_is_all_there_is() -> None:
    index = index_of(
        help="Shows the manual.", use_coupon="Redeems a voucher.", plan_route="Finds the way.", beep="Rings."
    )
    assert [first(query, index) for query in ("help", "use", "plan", "I want to use help")] == [
        "help",
        "use_coupon",
        "plan_route",
        "help",
    ]
    assert first("I need to beep", index) == "beep"
    assert first("current weather", index_of(current="The current state.", weather="The weather.")) is not None


# ---- what is not found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "  \n", "!?", "_", "\ud83d\ude80"])
def test_request_without_a_word_gets_the_nearest_namespaces_alone(query: str) -> None:
    answer = INDEX.search(query)
    assert answer.hits == ()
    assert len(answer.near_namespaces) == 3


@pytest.mark.parametrize(
    "query", ["please could you", "qqqq zzzz", "的", "wie spät ist es", "ගොනුවක් කියවන්න", "a" * 100_000]
)
def test_request_in_words_that_no_tool_has_gets_weak_hits_and_the_nearest_namespaces(query: str) -> None:
    answer = INDEX.search(query)
    assert {hit.confidence for hit in answer.hits} == {"weak"}
    assert len(answer.hits) == 8
    assert len(answer.near_namespaces) == 3
    assert {hit.id for hit in INDEX.search(query, visible=IDS[:5]).hits} == set(IDS[:5]), "of few tools all are shown"


def test_of_words_that_no_tool_has_those_with_most_letters_in_common_come_first_then_each_namespace_in_turn() -> None:
    texts = [
        ToolText(id=f"{namespace}__{name}", name=name, namespace=namespace)
        for namespace, names in (
            ("bank", ("add", "pay", "transfer_all")),
            ("cinema", ("seat", "show")),
            ("zoo", ("feed",)),
        )
        for name in names
    ]
    answer = Index.build(texts).search("traspaso", limit=5)
    assert [hit.id for hit in answer.hits] == [
        "bank__transfer_all",
        "bank__add",
        "cinema__seat",
        "zoo__feed",
        "bank__pay",
    ]
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)
    assert answer.near_namespaces == ("bank", "cinema", "zoo")


def test_where_no_tool_has_a_word_letters_and_a_likeness_that_stands_out_by_nothing_take_turns() -> None:
    names: tuple[str, ...] = ("add", "feed", "pay", "seat", "show", "transfer_all")
    index = Index.build([ToolText(id=f"zoo__{name}", name=name, namespace="zoo") for name in names])
    alike: dict[str, float] = dict(zip(names, (0.3, 0.5, 0.1, 0.6, 0.4, 0.2), strict=True))
    known = np.array([alike[id_.removeprefix("zoo__")] for id_ in index.ids], dtype=np.float32)
    answer = index.search("traspaso", limit=6, likeness=Cosines(known=known))
    assert [hit.id.removeprefix("zoo__") for hit in answer.hits] == [
        "transfer_all",
        "seat",
        "add",
        "feed",
        "show",
        "pay",
    ]
    assert {hit.confidence for hit in answer.hits} == {"weak"}
    assert answer.near_namespaces == ("zoo",)


def test_the_nearest_namespaces_are_visible_ones_with_most_letters_in_common_then_the_largest() -> None:
    sizes = {"astronomy": 1, "bakery": 3, "cinema": 2}
    texts = [ToolText(id=f"{ns}{n}", name=f"x{n}", namespace=ns) for ns, count in sizes.items() for n in range(count)]
    index = Index.build(texts)
    assert index.search("vustronqqq").near_namespaces == ("astronomy", "bakery", "cinema")
    without = [text.id for text in texts if text.namespace != "astronomy"]
    assert index.search("vustronqqq", visible=without).near_namespaces == ("bakery", "cinema")


def test_no_tools_find_nothing() -> None:
    assert Index.build([]).search("create issue") == Hits()
    assert INDEX.search("create issue", visible=()) == Hits()
    assert INDEX.search("create issue", visible=["github__unheard_of"]) == Hits()


# ---- who sees what ---------------------------------------------------------------------------------------------------

QUERIES = st.sampled_from([row["query"] for name in ("servable.jsonl", "unservable.jsonl") for row in rows(name)])


@given(query=QUERIES, hidden=st.sets(st.sampled_from(IDS)))
@settings(max_examples=examples(150))
def test_hidden_tools_leave_no_trace_in_an_answer(query: str, hidden: set[str]) -> None:
    visible = [text for text in TEXTS if text.id not in hidden]
    alone = Index.build(visible).search(query, limit=50)
    assert INDEX.search(query, visible={text.id for text in visible}, limit=50) == alone


def test_a_hundred_callers_share_one_index() -> None:
    draw = random.Random(6)
    for _ in range(100):
        visible = frozenset(draw.sample(IDS, 40))
        tools = INDEX.among(visible)
        for query in ("create issue", "read a text file", "translate text"):
            answer = INDEX.search(query, visible=tools)
            assert {hit.id for hit in answer.hits} <= visible
            assert answer == INDEX.search(query, visible=visible)


def test_visible_tools_of_another_index_are_refused() -> None:
    with pytest.raises(ValueError, match="another index"):
        INDEX.search("create issue", visible=Index.build(TEXTS).among())


def test_threads_get_the_answers_of_one() -> None:
    asked = [row["query"] for row in rows("servable.jsonl")] * 3
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(INDEX.search, asked)) == [INDEX.search(query) for query in asked]


# ---- change ----------------------------------------------------------------------------------------------------------


@given(order=st.permutations(TEXTS), cut=st.integers(0, len(TEXTS)), query=QUERIES)
@settings(max_examples=examples(25))
def test_updated_index_answers_as_one_built_anew(order: list[ToolText], cut: int, query: str) -> None:
    grown = Index.build(order[:cut]).updated(changed=order[cut:])
    assert grown.search(query, limit=50) == INDEX.search(query, limit=50)
    shrunk = INDEX.updated(removed=[text.id for text in order[cut:]])
    assert shrunk.search(query, limit=50) == Index.build(order[:cut]).search(query, limit=50)


def test_changed_text_replaces_the_old_one_in_the_new_index_only() -> None:
    before = index_of(a="Feeds the penguins.", b="Washes cars.")
    after = before.updated(changed=[ToolText(id="a", name="a", description="Trims the hedges.")], removed=["b", "zzz"])
    assert (is_matched("penguins", before), is_matched("penguins", after)) == (True, False)
    assert (is_matched("hedges", before), is_matched("hedges", after)) == (False, True)
    assert (len(before), len(after)) == (2, 1)


def test_two_tools_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="Two tools have the id 'a'"):
        Index.build([ToolText(id="a", name="a"), ToolText(id="a", name="b")])


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("git", "github__createIssue"),
        ("git_", "github__createIssue"),
        ("GitHub", "github__createIssue"),
        ("create_is", "github__createIssue"),
        ("createIs", "github__createIssue"),
        ("github__crea", "github__createIssue"),
        ("github.create_iss", "github__createIssue"),
        ("spreads", "tables__read_spreadsheet"),
    ],
)
def test_the_beginning_of_a_name_finds_it(typed: str, found: str) -> None:
    hits = INDEX.search(typed).hits
    assert found in [hit.id for hit in hits[:5]]
    assert hits[0].confidence != "weak"


def test_the_beginning_of_a_hidden_name_finds_what_an_index_without_it_finds() -> None:
    others = [text for text in TEXTS if text.namespace != "github"]
    without = Index.build(others).search("gith")
    assert INDEX.search("gith", visible=[text.id for text in others]) == without
    assert "github" not in str(without)


def test_a_word_that_a_tool_has_comes_before_names_that_only_begin_so() -> None:
    texts = [
        ToolText(id="a", name="push", description="Send commits to a git server.", namespace="vcs"),
        ToolText(id="b", name="list_stars", description="Who likes a project.", namespace="github"),
    ]
    assert [hit.id for hit in Index.build(texts).search("git").hits] == ["a", "b"]


@pytest.mark.parametrize("typed", ["g", "_", "...", "zzz", "x" * 5_000, "\ud800", "g i t"])
def test_what_begins_no_name_is_no_beginning(typed: str) -> None:
    assert not any(hit.confidence == "strong" for hit in INDEX.search(typed).hits)
