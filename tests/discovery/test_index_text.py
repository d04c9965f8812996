"""How text becomes terms."""

import pytest

from pegboard.discovery.search.terms import languages_of, split_identifier, terms_of, word_parts, words_of
from pegboard.language.stop_words import STOP_WORDS


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("createIssue", ["create", "issue"]),
        ("createHTTPIssue2", ["create", "http", "issue", "2"]),
        ("HTTP", ["http"]),
        ("Issue", ["issue"]),
        ("v2", ["v", "2"]),
        ("iPhone15Pro", ["i", "phone", "15", "pro"]),
        ("найтиФайл", ["найти", "файл"]),
        ("x", ["x"]),
    ],
)
def test_identifier_is_split_on_case_and_digits(word: str, parts: list[str]) -> None:
    assert split_identifier(word) == parts


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("list_folders", ["list", "folder"]),
        ("search-in-files", ["search", "file"]),
        ("createIssue", ["creat", "issu", "createissu"]),
        ("it's the user's", ["user"]),
        ("搜索工具", ["搜索", "索工", "工具"]),
        ("PDF文件", ["pdf", "文件"]),
        ("查", ["查"]),
        ("naïve café", ["naiv", "cafe"]),
        ("समाचार", ["समाचार"]),
    ],
)
def test_text_becomes_terms(text: str, terms: list[str]) -> None:
    assert terms_of(words_of(text)) == terms


def test_word_is_stemmed_in_english_and_in_its_language() -> None:
    assert terms_of(words_of("los archivos"), ("spanish",)) == ["archivo", "archiv"]
    assert word_parts("l'image", ("french",)) == ("image",)


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("List the folders below a path", ("english",)),
        ("list_folders", ("english",)),
        ("Busca los archivos en la carpeta que se indica", ("spanish",)),
        ("Durchsucht die Ordner nach einer Datei", ("german",)),
        ("Поиск файлов", ("russian",)),
        ("समाचार खोजें", ("hindi",)),
    ],
)
def test_language_is_told_from_stop_words_and_script(text: str, languages: tuple[str, ...]) -> None:
    assert languages_of(words_of(text)) == languages


def test_only_the_languages_in_question_are_told_apart() -> None:
    assert languages_of(["die", "Katze"], among=()) == ("english",)
    assert languages_of(words_of("die Katze und der Hund"), among=("german",)) == ("german",)


def test_stop_words_are_words_as_a_text_gives_them() -> None:
    for language, stop_words in STOP_WORDS.items():
        assert {word for word in stop_words if words_of(word) != [word] or word != word.lower()} == set(), language
