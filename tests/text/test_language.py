"""The tables of languages, which language a text is in, and what an answer has to say to be a refusal."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from evoseek.text.language import DENIALS, LANGUAGES, WORDED, WordedLanguage, is_refusal, languages_of

PAGE = Path(__file__).parents[2] / "src" / "evoseek" / "text" / "languages" / "README.md"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " . ",
        "Not found in the documents.",
        "Sorry, not found.",
        "Unbekannt, leider.",
        "The documents do not say.",
        "I could not find the answer in the documents.",
        "I cannot answer this question.",
        "I can't answer that question based on the provided documents",
        "I don’t know.",
        "I'm sorry, but the provided documents don't contain information about the football cup.",
        "Based on the documents, the answer cannot be determined.",
        "The passages do not mention who won.",
        "There is no information about this in the documents.",
        "The answer is not in the documents.",
        "Unanswerable",
        "No answer.",
        "N/A",
        "Je ne sais pas",
        "Les documents ne le disent pas.",
        "Je n'ai pas trouvé la réponse dans les documents.",
        "Ich weiß es nicht.",
        "Die Dokumente sagen das nicht.",
        "Ich konnte die Antwort nicht finden.",
        "No lo sé.",
        "Non lo so.",
        "Não sei.",
        "Ik weet het niet.",
        "Я не знаю.",
        "不知道",
        "文档中没有提到。",
        "无法回答这个问题",
        "わかりません。",
        "資料には記載されていません",
        "모르겠습니다.",
        "لا أعرف",
        "मुझे नहीं पता।",
        "ไม่ทราบคำตอบ",
    ],
)
def test_an_answer_that_says_only_that_it_is_unknown_is_a_refusal(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "Meri",
        "I don't know, but it may be Meri.",
        "I do not know. Meri Tolu",
        "The documents do not say it, so Meri.",
        "Unknown Pleasures",
        "None of them",
        "Nothing Compares 2 U",
        "No",
        "Sin City",
        "the river Unknown",
        "The documents say Meri",
        "The text contains 12 chapters",
        "The documents were signed in Paris",
        "文档",
        "不丹",
        "I do not know what the answer to this is " * 100,
        "From the Danish coast",
        "According to the BBC",
        "Based on the novel Moon",
        "Sorry",
        "Lo siento",
        "Unfortunately, I am sorry",
    ],
)
def test_what_answers_or_is_no_answer_at_all_is_not_a_refusal(answer: str | None) -> None:
    assert not is_refusal(answer)


def test_the_page_about_adding_a_language_explains_every_key() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    explained = [key for row in rows for key in re.findall("`([a-z_]+)`", row)]
    assert sorted(explained) == sorted(field.name for field in fields(WordedLanguage) if field.name != "code")


def test_english_and_german_have_a_table_of_wording() -> None:
    assert [language.code for language in WORDED] == ["de", "en"]
    assert len(LANGUAGES) == 14


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Who wrote the book?", "en"),
        ("Wer hat das Buch geschrieben?", "de"),
        ("Qui a écrit le livre ?", "fr"),
        ("Кто написал книгу?", "ru"),
        ("誰が本を書きましたか", "ja"),
        ("谁写了这本书？", "zh"),
        ("Τι είναι αυτό;", ""),
        ("Meri Tolu", ""),
    ],
)
def test_the_language_of_a_text(text: str, codes: str) -> None:
    assert " ".join(language.code for language in languages_of(text)) == codes


def test_words_of_denial_are_of_several_languages() -> None:
    assert {"not", "kein", "pas", "sin", "нет"} <= DENIALS
