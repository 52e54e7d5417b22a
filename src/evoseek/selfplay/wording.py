"""How questions are worded in the languages that the rules know, and which of these languages a text is in.

A language that is not here is not judged by its words: there a question mark makes a question.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from evoseek.corpus.scripts import family, fold, script_counts


@dataclass(frozen=True)
class Wording:
    """A language's words for asking, separated by spaces; as `words_of` gives them, with `_` for a space in one.

    `fronted`: its interrogatives open the question (else they stand anywhere). `joined`: its words are not set apart
    by spaces, or carry endings, so they are looked for as characters. `grammar` are words that tell the language and
    are rarely part of a name. `requests` open a question without an interrogative, or end it where `joined`.
    """

    code: str
    script: str
    grammar: str
    interrogatives: str
    requests: str
    polar: str = ""
    alternatives: str = ""
    conjunctions: str = ""
    endings: str = ""
    fronted: bool = True
    joined: bool = False

    @cached_property
    def grammar_words(self) -> frozenset[str]:
        """`grammar`, the interrogatives and the words for `or`."""
        return _words(self.grammar, self.alternatives, "" if self.joined else self.interrogatives)

    @cached_property
    def interrogative(self) -> re.Pattern[str]:
        """An interrogative, as a whole word unless `joined`."""
        return _pattern(self.interrogatives, self.joined)

    @cached_property
    def alternative(self) -> re.Pattern[str]:
        """A word for `or`."""
        return _pattern(self.alternatives, self.joined)

    def opens(self, words: str) -> bool:
        """Whether words begin as a question of this language does."""
        return bool(self.interrogative.match(words) or self.polar_form.match(words))

    @cached_property
    def conjunction(self) -> re.Pattern[str]:
        """A word for `and`."""
        return _pattern(self.conjunctions, self.joined)

    @cached_property
    def request_words(self) -> re.Pattern[str]:
        """A request."""
        return _pattern(self.requests, self.joined)

    @cached_property
    def polar_form(self) -> re.Pattern[str]:
        """What opens a question that is answered by yes or no, or occurs in it if `joined`."""
        return _pattern(self.polar, self.joined)

    @cached_property
    def second_question(self) -> re.Pattern[str]:
        """A conjunction with an interrogative after it: at once, or after one short word (`and in which year`)."""
        if not self.fronted or self.joined:
            return self.conjunction
        between = r"(?:\w{1,4} )?" if self.conjunctions else ""
        return re.compile(rf"(?<!\S)(?:{_choice(self.conjunctions)}) {between}(?:{_choice(self.interrogatives)})(?!\S)")


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split() if "_" not in word)


def _choice(text: str) -> str:
    """The words as alternatives of a pattern, longest first; `_` in one stands for a space."""
    words = sorted((unicodedata.normalize("NFC", word) for word in text.split()), key=len, reverse=True)
    return "|".join(re.escape(word.replace("_", " ")) for word in words) or r"(?!)"


def _pattern(text: str, joined: bool) -> re.Pattern[str]:
    return re.compile(_choice(text) if joined else rf"(?<!\S)(?:{_choice(text)})(?!\S)")


def words_of(text: str) -> str:
    """The words by which a text is judged: as `fold` gives them, with their accents (French `où` is not `ou`)."""
    return fold(text, accents=True)


def _wording(code: str, script: str, fronted: bool = True, joined: bool = False, **words: str) -> Wording:
    return Wording(code, script, fronted=fronted, joined=joined, **({"grammar": ""} | words))


WORDINGS: tuple[Wording, ...] = (
    _wording(
        "en",
        "LATIN",
        grammar="the of and is was were are did does has had been from with for that this his her their its it by at "
        "than because but after before into between she he they not have which",
        interrogatives="who whom whose what which when where why how",
        requests="name state identify specify give list find determine indicate cite provide tell_me tell_us mention",
        polar="is are was were am do does did has have had can could will would should may might must isn aren wasn "
        "weren don doesn didn hasn",
        alternatives="or",
        conjunctions="and also",
    ),
    _wording(
        "de",
        "LATIN",
        grammar="der das dem den des ist sind war waren wurde wurden und nicht ein eine einer einem einen im vom zum "
        "zur mit auf aus bei nach auch wird hat hatte für sich als bis dass weil ihr sein ich er",
        interrogatives="wer wen wem wessen was wann wo woher wohin worin woran wofür womit wovon worauf worüber "
        "wodurch "
        "wozu welche welcher welches welchen welchem wie wieviel wieso warum weshalb",
        requests="nenne nennen nennt nenn gib geben bestimme bestimmen sage sagen",
        polar="ist sind war waren hat haben hatte hatten wird werden wurde wurden kann konnte gibt gab liegt lag steht "
        "gehört stammt kommt darf muss soll lebt starb",
        alternatives="oder",
        conjunctions="und sowie",
    ),
    _wording(
        "fr",
        "LATIN",
        grammar="est était fut sont ont été dans avec pour par sur une et du au aux qui quelle quel pas il elle cette "
        "ce "
        "ces son sa ses les des dont où ainsi mais",
        interrogatives="qui que qu quoi quel quelle quels quelles lequel laquelle lesquels lesquelles duquel auquel "
        "quand où comment combien pourquoi",
        requests="nommez nomme donnez donne indiquez indique citez cite précisez précise dites",
        polar="est_ce a_t est_il est_elle",
        alternatives="ou",
        conjunctions="et",
    ),
    _wording(
        "es",
        "LATIN",
        grammar="el los las una es fue era son con por para del que y su sus al está se como más pero entre desde "
        "hasta",
        interrogatives="quién quiénes qué cuál cuáles cuándo dónde cómo cuánto cuánta cuántos cuántas adónde quien "
        "cual cuanto cuantos",
        requests="nombre nombra nombren diga di indique indica cite cita dé mencione menciona señale señala",
        polar="es fue está era son tiene hay",
        alternatives="o u",
        conjunctions="y e",
    ),
    _wording(
        "it",
        "LATIN",
        grammar="il gli è fu era sono con per del della dei delle nel nella che di un una si e dal al sul più anche",
        interrogatives="chi che cosa quale quali qual quando dove come quanto quanta quanti quante perché",
        requests="nomina indica dimmi indicare",
        polar="è fu era sono ha hanno",
        alternatives="o",
        conjunctions="e ed",
    ),
    _wording(
        "pt",
        "LATIN",
        grammar="o os as uma é foi era são com por para do da dos das no na em que e seu sua ao se pelo pela não mais",
        interrogatives="quem que qual quais quando onde como quanto quanta quantos quantas porquê",
        requests="nomeie indique diga cite",
        polar="é foi era são tem há",
        alternatives="ou",
        conjunctions="e",
    ),
    _wording(
        "nl",
        "LATIN",
        grammar="het een van is was waren werd werden en met voor op uit bij naar door niet zijn heeft had aan te dat",
        interrogatives="wie wat waar waarin waarom wanneer welk welke hoe hoeveel",
        requests="noem geef",
        polar="is was zijn waren heeft had ligt werd kan",
        alternatives="of",
        conjunctions="en",
    ),
    _wording(
        "ru",
        "CYRILLIC",
        grammar="в и на с по из за от к у не был была было были есть это он она его её их как для при до же или",
        interrogatives="кто кого кому кем ком чей чья чьё чьи чьего чьей чьему чьим чьём чью "
        "чьих чьими чего чему чем что где куда откуда когда почему зачем как "
        "какой какая какое какие каким какими каких какого какому каком какую какою сколько скольких скольким",
        requests="назови назовите укажи укажите скажи скажите определи определите приведи приведите",
        polar="ли правда_ли верно_ли",
        alternatives="или либо",
        conjunctions="и а а_также",
    ),
    _wording(
        "ar",
        "ARABIC",
        grammar="في من إلى على عن مع هو هي التي الذي كان كانت هذا هذه أن ما",
        interrogatives="من ما ماذا متى أين كم كيف لماذا أي أية مم مما عم علام بم لمن أيهما أيهم أيها فيم إلام بكم "
        "منذ_متى بأي بأية لأي لأية بماذا بمن",
        requests="اذكر اذكري سم حدد حددي عين اكتب_اسم",
        polar="هل أليس ألم",
        alternatives="أم أو",
        conjunctions="و",
    ),
    _wording(
        "hi",
        "DEVANAGARI",
        fronted=False,
        grammar="है हैं था थी थे का की के को ने में से पर और यह वह",
        interrogatives="कौन किस किसने किसे किसका किसकी किसके किससे किन क्या कब कहाँ कहां कितना कितने कितनी क्यों कैसे कैसा कैसी",
        requests="बताइए बताओ बताएँ बताएं बताइये बतायें नाम_लिखिए नाम_लिखो दीजिए",
        polar="क्या",
        alternatives="या अथवा",
        conjunctions="और तथा एवं",
    ),
    _wording(
        "zh",
        "HAN",
        fronted=False,
        joined=True,
        interrogatives="谁 誰 什么 什麼 哪 几 幾 多少 何 怎 为什么 多大 多长 多高 多远 多久 多深 多宽 多重 多長 多遠",
        requests="说出 写出 指出 列出 给出 請說出 回答",
        polar="吗 嗎 是否 是不是 有没有",
        alternatives="还是 還是",
        conjunctions="， , 、 并 和 与 又 以及 而 还",
    ),
    _wording(
        "ja",
        "KANA",
        fronted=False,
        joined=True,
        interrogatives="何 誰 どこ どの どれ どちら どっち いつ いくつ いくら どう なぜ なに だれ どんな どなた いずれ",
        requests="答えなさい 答えよ 答えてください 挙げなさい 挙げてください 挙げよ 述べよ 述べなさい 教えてください",
        endings="か",
        alternatives="それとも または もしくは",
        conjunctions="、 , ， そして また および ",
    ),
    _wording(
        "th",
        "THAI",
        fronted=False,
        joined=True,
        interrogatives="อะไร ใคร ไหน ใด เมื่อไร เมื่อไหร่ กี่ เท่าไร เท่าไหร่ ทำไม อย่างไร ยังไง",
        requests="จงบอก บอกชื่อ จงระบุ ระบุชื่อ",
        polar="หรือไม่ ไหม ใช่หรือเปล่า หรือเปล่า มั้ย",
        alternatives="หรือ",
        conjunctions="และ แล้ว",
    ),
    _wording(
        "ko",
        "HANGUL",
        fronted=False,
        joined=True,
        interrogatives="누구 누가 무엇 무슨 뭐 어디 어느 어떤 언제 몇 얼마 왜 어떻게",
        requests="말하시오 쓰시오 답하시오 말하라 쓰라 대시오 밝히시오 고르시오 답하라",
        endings="까 나요 는가 은가 인가 던가 가요 는지요",
        alternatives="아니면 혹은 또는",
        conjunctions="고_ 며_ 그리고 , 와_ 과_",
    ),
)
_BY_CODE = {wording.code: wording for wording in WORDINGS}
_LATIN = tuple(wording for wording in WORDINGS if wording.script == "LATIN")
_ONLY_ONE = {wording.script: wording for wording in WORDINGS if wording.script != "LATIN"}
SURE = 2  # words of its grammar tell the language of a text in Latin script


def wordings_of(text: str) -> tuple[Wording, ...]:
    """The languages that a text may be in, () if none that is known here: by its script, and in Latin script by the
    most words of grammar, at least two, or else by how it begins."""
    name = family(script_counts(text))
    if name != "LATIN":
        return (_ONLY_ONE[name],) if name in _ONLY_ONE else ()
    words = words_of(text).split()
    hits = grammar_hits(words)
    most = max(hits.values())
    if most < SURE:
        return tuple(wording for wording in _LATIN if wording.opens(" ".join(words)))
    return tuple(_BY_CODE[code] for code, count in hits.items() if count == most)


def grammar_hits(words: Iterable[str]) -> dict[str, int]:
    """How many of the folded words belong to the grammar of each language in Latin script."""
    listed = list(words)
    return {wording.code: sum(word in wording.grammar_words for word in listed) for wording in _LATIN}


def grammar_of(code: str) -> frozenset[str]:
    """The words of grammar of one language."""
    return _BY_CODE[code].grammar_words


LATIN_WORDINGS = _LATIN
YES_NO = frozenset(
    fold(
        "yes no ja nein oui non sí sì si não sim nee да нет نعم لا कोई हाँ हां नहीं 是 否 不是 是的 不 はい いいえ ใช่ "
        "ไม่ใช่ ไม่ 네 예 아니요 아니오 evet hayır tak nie"
    ).split()
)
