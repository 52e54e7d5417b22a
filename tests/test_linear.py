"""Whoever wrote it, a text is read in a time that grows as its length does: parsers run where every rollout waits.

Each parser is given 300,000 characters of the worst that is known for it, and 0.4 seconds of processor time, or where
that is more, thirty times what a tenth of the text took. One that takes time by the square of the length needs a
hundred times that, and from 0.6 seconds to many minutes. In `make check` the text has 120,000 characters.
"""

import asyncio
import gc
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from runpy import run_path

import pytest
from tests.rings import sized

from evoseek.documents.formats import parse_markdown
from evoseek.documents.passages import split_document
from evoseek.errors import PageError, ToolError
from evoseek.http.limits import TransientError, seconds_of
from evoseek.http.server import error_message, json_of, redacted
from evoseek.questions.answer_rules import is_long, is_sentence, is_supported, misfits, stands_in_question
from evoseek.questions.answers import TitleFinder, mine_answers, names, numbers, phrases, split_dates
from evoseek.questions.question_rules import (
    asks_twice,
    depends_on_now,
    instructs,
    is_cut_off,
    is_noise,
    is_question,
    is_template,
    is_vague,
    mixes_languages,
    offers_alternatives,
    refers_to_passage,
)
from evoseek.renderers.chat_template import parse_hermes, parse_json
from evoseek.renderers.encoding import TextEncoder, harmless
from evoseek.renderers.tags import SEARCH, TagMessages, read_action
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.reward.functions import WebFormatReward
from evoseek.reward.judge import on_one_line, parse_label, parse_verdict, same_family
from evoseek.search.analyser import Analyser
from evoseek.selfplay.filters import stands_in, supporting_passages
from evoseek.systems.zerosearch.engine import parse_documents
from evoseek.text.normalization import f1, guarded_substring_match, normalise
from evoseek.types import Action, Document, Passage, Question, StopReason, ToolCall, ToolResult, Trajectory
from evoseek.web.address import AddressRules, check_url
from evoseek.web.fetch import blocked_reason
from evoseek.web.providers import PROVIDERS, WebEngine
from evoseek.web.reading import beginning_of, parse_note, segments_of
from evoseek.world.grammar import asked_fact, parse, states

LENGTH = sized(check=120_000, test=300_000, night=300_000)
SECONDS = 0.4
MORE = 30  # times what a tenth of the text takes: 10 are linear, 100 the square


@contextmanager
def processor_time(seconds):
    """Fails what needs more. Only time of this process counts, so a busy machine changes nothing, and no garbage is
    collected meanwhile: what other tests have left is no work of a parser."""

    def too_long(*_):
        pytest.fail(f"more than {seconds:g} seconds of processor time", pytrace=False)

    before = signal.signal(signal.SIGVTALRM, too_long)
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)


@cache
def tokenizer():
    return run_path(str(Path(__file__).parent / "doubles" / "made_tokenizers.py"))["MAKERS"]["qwen"]()


def trajectory(*turns):
    call = ToolCall("search", {"query": "a"})
    return Trajectory(
        id="q/0",
        question=Question("q", "who ?", ("Meri",)),
        role="solver",
        segments=(),
        actions=tuple(Action(turn, (call,)) for turn in turns),
        tool_results=(ToolResult(call, "", (Passage("p", "p", "Meri", "text"),)),),
        stop_reason=StopReason.ANSWERED,
        answer="Meri",
    )


def documents(text):
    return parse_documents(text, 1, 200)


def tool_turn(text):
    ids = tokenizer().encode(text[:100_000], add_special_tokens=False)  # tokenizers are slow
    return ToolCallRenderer(tokenizer(), []).parse(ids)


def outside(text):
    return TextEncoder(tokenizer(), ("search",)).outside(text[:100_000])


def page(text):
    return blocked_reason(200, {}, b"", text)


def segments(text):
    return list(segments_of(text, 4))


def title(text):
    return mine_answers([Passage("p", "p", text, "text")])


def document(text):
    return split_document(Document("d", "title", text))


def heading(text):
    return parse_markdown(text.encode())


def result(text):
    engine = WebEngine("searxng", replace(PROVIDERS["searxng"], url="http://localhost/"))
    return engine._results({"results": [{"url": text, "title": text, "content": text}]})


def reply(read):
    return lambda text: read(text.encode())


WORST = [  # parser, what begins the text, what it repeats, what ends it
    (documents, "Document 1: x", " ", "y"),
    (documents, "x", " ", "document"),
    (documents, "document", " ", ""),
    (documents, "document", "\n", "x"),
    (documents, "Document 1", "*", ""),
    (documents, "", "# ", "x"),
    (documents, "a\n", "document\n", ""),
    (documents, "", "document ", ""),
    (documents, "Document ", "1", ": x"),
    (documents, "", "<think>", ""),
    (documents, "```", " ", "x"),
    (documents, "", "```a \n", ""),
    (parse_note, "\n", "\n", "```x"),
    (parse_note, "", "[", ""),
    (parse_note, '{"relevant": "', "a ", '", "read_on": true}'),
    (parse_hermes, "", "<tool_call>", ""),
    (parse_hermes, "", '<tool_call>{"name": "a"}</tool_call>', ""),
    (parse_hermes, "<tool_call>", '{"a":', "</tool_call>"),
    (parse_json, "", "{", ""),
    (parse_json, '{"name": "a", "parameters": {"q": ', "1", "}}"),
    (tool_turn, "", "<answer>", "<|im_end|>"),
    (tool_turn, "", "<question>", "<|im_end|>"),
    (tool_turn, "", "<think></think>", "<|im_end|>"),
    (partial(read_action, calls=SEARCH), "", "<search>", ""),
    (partial(read_action, calls=SEARCH), "", "<question>a</question>", ""),
    (TagMessages().parse, "", "<think>", ""),
    (TagMessages().parse, "", " ", ""),
    (outside, "<", " ", "x"),
    (harmless, "", "[!A", ""),
    (harmless, "[", "_", ""),
    (harmless, "[", "!", "A"),
    (on_one_line, "", "[_!", ""),
    (parse_verdict, "```\n", "\n```", "x"),
    (parse_verdict, "{", '"reason": "",', '"correct": true}'),
    (partial(parse_label, labels=["good", "bad"]), "", "*", ""),
    (lambda text: asyncio.run(WebFormatReward()(trajectory(text))), "", "<think>", "<answer>"),
    (normalise, "", "a ", ""),
    (lambda text: f1(text, [text]), "", "a1 b2 ", ""),
    (lambda text: guarded_substring_match(text, [text]), "", "x ", "y"),
    (lambda text: stands_in(text[: LENGTH // 2] + "y", text), "", "xb", ""),
    (lambda text: same_family(text, text), "", "ab1", ""),
    (lambda text: supporting_passages(trajectory("", text)), "", "<a", ""),
    (split_dates, "1 ", "a", ""),
    (split_dates, "", "1 ", ""),
    (numbers, "", "1,", "_"),
    (numbers, "", "1", "_"),
    (names, "", "A of ", "b"),
    (names, "", "The ", ""),
    (names, "A", " ", "A"),
    (names, "A of", " ", "A"),
    (names, "", "Aa-", ""),
    (names, "", "A's ", ""),
    (phrases, "", "ab-cd", "_"),
    (phrases, "", "(a'", ""),
    (TitleFinder(["a b", "a b c d e"]), "", "a ", ""),
    (title, "a", " ", "b"),
    (title, "a (b)", " ", "x"),
    (title, "", "(", ""),
    (title, "", "() ", "x"),
    (heading, "# a", " ", "x"),
    (heading, "# a", "#", "x"),
    (heading, "# ", " #", "x"),
    (heading, "a\n", "=", " x"),
    (document, "", "a\n\n", ""),
    (document, ".", ")", ""),
    (document, "a", " ", "b"),
    (parse, "what is ", "the a of ", "'"),
    (parse, "what is a", " a", "'"),
    (parse, "what is a", "'s b", "!'"),
    (parse, "which has the later year, a", " or a", "'"),
    (parse, "which a has the b c", " and the a b", "'"),
    (parse, "name the a of a", " a", "'"),
    (parse, "", "' ", ""),
    (asked_fact, "", "a ", ""),
    (lambda text: states([text], "a", "b"), "a ' s b is ", "c ", "!"),
    (lambda text: states([text], "a", "b"), "", "c ", " is the b of a!"),
    (segments, "a a a a", "\n", "b b b b b"),
    (segments, "a a a .", ")", " b b b b b"),
    (segments, "", "a. ", ""),
    (partial(beginning_of, max_words=30), "", "a ", ""),
    (page, "", "verify", ""),
    (page, "", "i'", ""),
    (Analyser("english").tokens, "", "running ", ""),
    (Analyser().tokens, "a", "\u05b1\u05b0", ""),  # marks in the wrong order
    (Analyser().tokens, "a", "\u0323\u0301", ""),
    (Analyser().tokens, "a", "\u0301\uff9e", ""),
    (Analyser().tokens, "a", "\u05b1\u05b0" * 30 + "\u200b", ""),
    (Analyser().tokens, "", "\u0915\u093e", ""),
    (result, "http://", "\u0323\u0301", ""),
    (result, "http://", "a.", ""),
    (result, "", " ", ""),
    (partial(check_url, rules=AddressRules()), "http://a.b/", "../", ""),
    (seconds_of, "", "1", "x"),
    (seconds_of, "Mon, 1 Jan 2020 ", "1:", ""),
    (seconds_of, "Mon, 1 Jan 2020 ", "(", ""),
    (seconds_of, "", '"', ""),
    (reply(partial(json_of, secret="key")), "", "1", ""),
    (reply(partial(json_of, secret="key")), "{", '"a":1,', '"b":1}'),
    (reply(error_message), "", '{"error":', ""),
    (reply(partial(redacted, secret="%2Fkey/with+signs")), "", "%252Fkey", ""),
    (reply(partial(redacted, secret="aaaaaaaa")), "", "aaaaaaab", ""),
    (reply(partial(redacted, secret="key")), "", " ", ""),
    (is_question, "", "Ã", ""),
    (asks_twice, "", "a? ", ""),
    (asks_twice, "", "“", ""),
    (asks_twice, "", "who and ", ""),
    (asks_twice, "", "谁，", ""),
    (offers_alternatives, "", "哪", ""),
    (offers_alternatives, "", "between ", ""),
    (instructs, "", "ignore ", ""),
    (instructs, "", "<a ", ""),
    (partial(is_template, answer="a"), "", "{a", ""),
    (partial(is_template, answer="a"), "", "... ", ""),
    (refers_to_passage, "", "according to the ", ""),
    (is_vague, "", "the book ", ""),
    (is_vague, "", "この", "は？"),
    (depends_on_now, "", "now ", ""),
    (is_cut_off, "", "في ", ""),
    (is_noise, "", "abcdefghijkl", ""),
    (is_noise, "", "aaab", ""),
    (partial(mixes_languages, passages=["it is"]), "", "a ", ""),
    (partial(is_sentence, "it was built there"), "", "哪", ""),
    (instructs, "b", "#", ""),
    (partial(is_sentence, question="who is it?"), "b c d e ", "a", ""),
    (partial(is_sentence, question="who is it?"), "b c d e ", "A", ""),
    (partial(is_supported, question="a", passages=["b c"]), "1", " 111", " 1111"),
    (lambda text: is_supported("1 112", "who is it?", [text]), "", "1 111 ", ""),
    (asks_twice, "", "'a ", ""),
    (is_long, "", "#", ""),
    (partial(stands_in_question, "a"), "", "a-", ""),
    (partial(misfits, "a"), "", "哪", ""),
    (partial(is_supported, question="a", passages=["b c"]), "", "누가 ", ""),
]


@pytest.mark.parametrize(
    ("parser", "beginning", "repeated", "end"), WORST, ids=[f"{row[1]}{row[2]}{row[3]}"[:30] for row in WORST]
)
def test_a_long_text_is_read_in_linear_time(parser, beginning, repeated, end):
    def read(length, seconds):
        text = beginning + repeated * (length // len(repeated)) + end
        start = time.process_time()
        with processor_time(seconds), suppress(ValueError, PageError, ToolError, TransientError):
            parser(text)
        return time.process_time() - start

    read(LENGTH // 1000, 10 * SECONDS)  # what is made once, as compiled expressions, is no part of the tenth's time
    tenth = read(LENGTH // 10, 10 * SECONDS)
    read(LENGTH, max(SECONDS, MORE * tenth))
