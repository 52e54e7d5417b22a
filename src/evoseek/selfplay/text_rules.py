"""Rules about unwanted content of a question: instructions, leftovers, references, other languages, noise."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from evoseek.corpus.scripts import family, fold, script, script_counts
from evoseek.selfplay.wording import SURE, grammar_hits, grammar_of, words_of

_TAG = re.compile(
    r"</?[a-z_|!][^<>]{0,80}>|<\|[^<>|]{0,40}\|>|\[/?INST\]|<<SYS>>|</?s>|```|^\s*(?:system|assistant|user|human)\s*:|"
    r"(?<=[.?!？] )(?:system|assistant|user|human)\s*:|## ?\w|"
    r"(?:^|[.?!？。] ?)(?:système|sistema|система|النظام|系统|系統|システム|ระบบ|시스템|सिस्टम)\s*[:：]",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://|www\.\w|\bftp://|\b\w+\.(?:com|org|net|io)/", re.IGNORECASE)
_ORDER = re.compile(
    r"\b(?:system prompt|as an ai|language model|you are now|your (?:\w+ )?(?:instructions|guidelines|prompt|rules)|"
    r"(?:output|reply|respond|answer|say|print) (?:only|with|just|nothing)|full marks|maximum score|"
    r"(?:top|highest|full) (?:score|marks|rating)|rate this|execute|jailbreak)\b"
    r"|antworte nur|volle punktzahl|systemprompt|dis seulement|répond(?:s|ez) |note maximale|responde (?:solo|s[oó]lo|"
    r"[uú]nicamente)|máxima puntuación|puntuación máxima|di que |системный промпт|ответь |выведи|высший балл|"
    r"满分|滿分|直接输出|输出“|没有任何限制|"
    r"満点|出力して|とだけ答え|만점|라고만|ให้คะแนนเต็ม|ตอบว่า|अंक दो|العلامة الكاملة",
    re.IGNORECASE,
)
# Of each pair one word of either kind: to pass over, and what was said before.
_OVERRIDES = tuple(
    (re.compile(rf"(?<!\w)(?:{verbs})", re.IGNORECASE), re.compile(nouns, re.IGNORECASE))
    for verbs, nouns in (
        (r"(?:ignore|disregard|forget|override|bypass)\b",
         r"instruction|prompt|guideline|rules|(?:above|previous|prior|earlier|before|everything)\b"),
        (r"ignorier|vergiss|vergesst|vergessen sie|missachte",
         r"anweisung|vorgabe|instruktion|bisherig|vorherig|obige"),
        (r"ignore[zr]?\b|oublie|néglige", r"consigne|instruction|ci-dessus|précédent"),
        (r"ignora\b|ignore\b|olvida|haz caso omiso|dimentica|esqueça",
         r"instruc|istruzion|instruç|anterior|indicaciones|precedent"),
        (r"игнорируй|забудь|не обращай", r"инструкц|указани|предыдущ|прежн|команд"),
        (r"تجاهل|انس\b|اهمل", r"تعليمات|أوامر|السابق|أعلاه"),
        (r"अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल", r"निर्देश|आदेश|पिछल"),
    )
)  # fmt: skip
_JOINED_OVERRIDES = (
    (re.compile("忽略|无视|無視|忘记|忘掉|忘れ|従わない"), re.compile("指令|指示|命令|以上|之前|提示|プロンプト")),
    (re.compile("เพิกเฉย|ไม่ต้องสนใจ|ละเว้น|ลืม|อย่าสนใจ"), re.compile("คำสั่ง|คำแนะนำ")),
    (re.compile("무시|잊"), re.compile("지시|명령|지침|프롬프트")),
)
_LABEL = (
    r"question|answer|frage|antwort|réponse|pregunta|respuesta|domanda|risposta|pergunta|resposta|вопрос|ответ|"
    r"سؤال|السؤال|الجواب|الإجابة|प्रश्न|उत्तर|问题|問題|问|答案|答|质问|質問|回答|答え|คำถาม|คำตอบ|질문|답|정답|대답"
)
_TEMPLATE = re.compile(
    rf"\{{[^{{}}]{{0,60}}\}}|\{{\{{|\}}\}}|\[[^\[\]\d]{{1,40}}\]|<[^<>\d]{{1,40}}>|_{{3,}}|\bX{{3,}}\b|○○|\bO{{3}}|"
    rf"\.\.\. ?\?|"
    rf"(?:^|[\s【\[(.。?？])(?:{_LABEL})(?: ?\d+)?[】\])]?\s*[:：】]|^(?:sure|certainly|of course|okay|ok)\b ?[!,.]|"
    rf"\b(?:here is|here's) (?:a|the|your) question|^q\d*\s*[:.]|lorem ipsum|\btodo\b|"
    rf"hier ist (?:die|eine|ihre) frage|voici (?:la|une|votre) question|aquí (?:está|tiene|tienes) (?:la|una|"
    rf"tu) pregunta|"
    rf"вот (?:ваш )?вопрос|إليك السؤال|बना प्रश्न|आपका प्रश्न|以下是|以下が質問|นี่คือคำถาม|다음은 (?:질문|문제)",
    re.IGNORECASE,
)
_NO_ANSWERS = frozenset(
    fold(text)
    for text in ("answer", "the answer", "question", "unknown", "n/a", "none", "not stated", "not mentioned",
                 "not given", "not specified", "i don't know", "i do not know", "unbekannt",
                 "inconnu", "desconocido", "неизвестно")
)  # fmt: skip
_NOT_A_TITLE = r"(?! (?:of|that|which|called|signed|by|titled|published|named)\b)"
_REFERS = re.compile(
    r"\b(?:according to|in|from|by|based on|per|mentioned in|described in|stated in|given in) (?:the|this|that) "
    r"(?:above |given |provided |following |preceding )?(?:text|passage|document|paragraph|excerpt|context|snippet|"
    rf"source text|search results?|information provided){_NOT_A_TITLE}"
    r"|\b(?:according to|mentioned in|described in|based on) (?:the|this) (?:above |given )?article\b"
    r"|\b(?:passage|text|document|paragraph|article) above\b|\babove (?:passage|text)\b|\bmentioned above\b|"
    r"\babove-mentioned\b"
    r"|\b(?:laut|gemäß) (?:dem |diesem |obigem )?(?:text|abschnitt|passage|dokument)|\btext zufolge|\b(?:im|in diesem|"
    r"in dem) "
    r"(?:obigen |genannten )?(?:text|abschnitt|dokument)\b|\bobige[nmrs]? |\boben (?:genannt|erwähnt)"
    r"|(?:selon|d['’]après|dans) (?:le|ce|l['’]) ?(?:texte|passage|extrait|document|article)|ci-dessus|ci-dessous"
    r"|(?:según|de acuerdo con|en) (?:el|este) (?:texto|pasaje|fragmento|documento|párrafo|artículo)|(?:párrafo|texto|"
    r"fragmento|pasaje) anterior|mencionad[oa] (?:anteriormente|arriba|en el)"
    r"|(?:secondo|nel) (?:il )?(?:testo|brano|passo|documento)|(?:de acordo com|segundo|no) o? ?(?:texto|trecho|"
    r"documento)"
    r"|(?:согласно|в|по) (?:\w+ )?(?:тексту|тексте|отрывке|отрывку|документе|документу|абзаце)|отрывка выше|"
    r"указанно\w+ выше"
    r"|(?:وفق|وفقا|وفقًا|حسب|بحسب|في) ?(?:ل|ل?هذ[اه] )?(?:لنص|النص|نص|للنص|الفقرة|المقال|المقالة|الوثيقة)|أعلاه|"
    r"المذكور\w* في (?:هذ|النص|المقال)|ورد في (?:النص|المقال)"
    r"|(?:पाठ|गद्यांश|अनुच्छेद|लेख|दस्तावेज़) (?:के अनुसार|में)|उपरोक्त|ऊपर (?:दिए|दिया|लिखे)"
    r"|根据(?:上|文|本|以上|这段|该)|上述|上文|(?:这段|該段|该段|本段|这篇|此)(?:文字|文章|段落|文|话)|文中|段落中|以上(?:文|内容)"
    r"|(?:本文|上の文章|この文章|上記|文章)(?:に|の|で|によ|中)|前述"
    r"|(?:จาก|ตาม|ใน)(?:ข้อความ|บทความ|เนื้อหา|เอกสาร|ย่อหน้า)|ข้างต้น|ด้านบน"
    r"|(?:본문|지문|위 글|이 글|윗글|제시문|위 문서|이 문서)(?:에|의|을|은|이)|위에서 언급|위의 (?:글|문장|내용)",
    re.IGNORECASE,
)
_STRANGE_RUN = re.compile(r"[?!.,;:@#$%^&*~=+|\\/<>_‽§]{4,}")
_REPEATED_CHARACTER = re.compile(r"(\w)\1{4,}")
_REPEATED_PIECE = re.compile(r"(\w{2,12}?)\1{3,}")
_REPEATED_WORD = re.compile(r"(?<!\S)(\S+)(?: \1(?!\S)){2,}")
_USUAL = frozenset("+%°$€£¥&/<>=№²³")
_MOJIBAKE = re.compile("Ã[\u0080-\u00bf]|â€|Ð[\u0080-\u00bf]|\ufffd")
_VOWELS = re.compile("[aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýœıāēīōūăąęőűůěı]", re.IGNORECASE)
_ODD_SHARE, _UNIQUE_SHARE, _MANY_WORDS = 0.12, 0.55, 8
_SURE_HITS = 3
_NEAR = 0.67  # share of the highest count of function words from which another language is possible, too
_NAMELIKE = re.compile(r"[A-Z][\w.&'-]*|[a-z]{1,3}|[a-z]?[A-Z]\w*|\w*\d\w*")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f][\w.&'’-]*")


def instructs(text: str) -> bool:
    """Whether a text addresses a model instead of asking: instructions, tags of roles or tools, addresses to open."""
    if _TAG.search(text) or _ADDRESS.search(text) or _ORDER.search(text):
        return True
    return any(verb.search(text) and noun.search(text) for verb, noun in (*_OVERRIDES, *_JOINED_OVERRIDES))


def is_template(question: str, answer: str) -> bool:
    """Whether a text contains leftovers: unfilled fields, blanks, labels, small talk, or an answer that states none."""
    return bool(_TEMPLATE.search(question) or _TEMPLATE.search(answer)) or fold(answer) in _NO_ANSWERS


def refers_to_passage(question: str) -> bool:
    """Whether a question refers to a text that the solver cannot see."""
    return bool(_REFERS.search(unicodedata.normalize("NFKC", question)))


def is_noise(question: str) -> bool:
    """Whether a text is not language: symbols, repetition, letters without a word."""
    plain = unicodedata.normalize("NFKC", question)
    if _STRANGE_RUN.search(plain) or _REPEATED_CHARACTER.search(plain) or _MOJIBAKE.search(question):
        return True
    folded = fold(plain)
    words = folded.split()
    if _REPEATED_WORD.search(folded) or _REPEATED_PIECE.search(folded):
        return True
    if len(words) >= _MANY_WORDS and len(set(words)) < _UNIQUE_SHARE * len(words):
        return True
    return _odd_characters(plain) or _without_vowels(words)


def _odd_characters(text: str) -> bool:
    odd = sum(_is_odd(character) for character in text)
    return (odd >= 3 and odd > _ODD_SHARE * 0.5 * len(text)) or odd >= 5


def _is_odd(character: str) -> bool:
    if character in _USUAL:
        return False
    category = unicodedata.category(character)
    return category[0] in "SC" or character in "#@*\\|~^_※§"


def _without_vowels(words: list[str]) -> bool:
    latin = [word for word in words if len(word) > 4 and word.isalpha() and family(script_counts(word)) == "LATIN"]
    return sum(_VOWELS.search(word) is None for word in latin) >= 2


def mixes_languages(question: str, passages: Sequence[str]) -> bool:
    """Whether a question is in another script or language than the passages, or changes it within a sentence. Names of
    another script or language may stand in it, and all that the passages say so."""
    evidence = words_of(" ".join(passages))
    counts = script_counts(question)
    own, given = family(counts), family(script_counts(evidence))
    if given and own != given and counts[given] < counts.total() and not {own, given} <= {"HAN", "KANA"}:
        return True
    if any(_mixed_word(word) for word in fold(question).split()):
        return True
    return _foreign_script(question, own, evidence) or (own == "LATIN" and _foreign_grammar(question, evidence))


def _mixed_word(word: str) -> bool:
    """Letters of two alphabets that look alike, in one word."""
    scripts = {script(character) for character in word}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1


def _foreign_script(question: str, own: str, evidence: str) -> bool:
    """Whether words of another script stand in a question that are no names, no units and not in the evidence."""
    allowed = {own, "HAN"} if own in ("KANA", "HANGUL") else {own}
    foreign = [word for word in _script_runs(question) if script_counts(word).keys() - allowed]
    unknown = [word for word in foreign if words_of(word) not in evidence]
    if own == "LATIN":
        return bool(unknown)
    return any(not _NAMELIKE.fullmatch(word) or word in _LATIN_GRAMMAR for word in unknown)


_LATIN_GRAMMAR = frozenset(
    word for code in ("en", "de", "fr", "es") for word in grammar_of(code) if len(word) > 1
) | {"What", "Which", "Who", "Where", "When", "How", "Why", "Does", "Did", "Is"}  # fmt: skip


def _script_runs(text: str) -> list[str]:
    """The words of a text, cut where letters of another script begin."""
    runs: list[str] = []
    last = ""
    for character in text:
        name = script(character) or ("" if not character.isdigit() else last)
        if name and name == last:
            runs[-1] += character
        elif name:
            runs.append(character)
        last = name
    return runs


def _foreign_grammar(question: str, evidence: str) -> bool:
    """Whether words of grammar of two languages stand in a question; of a title in capitals they do not count, nor what
    the evidence says in the same words."""
    asked, told = words_of(question).split(), evidence.split()
    hits, of_evidence = grammar_hits(asked), grammar_hits(told)
    sure = max(of_evidence.values()) >= _SURE_HITS and max(hits.values()) >= SURE
    if sure and not any(hits[code] for code in _leading(of_evidence)):
        return True
    home = _leading(hits, of_evidence)
    said = set(told).union(*(grammar_of(code) for code in home))
    own = [word for word in _running_words(question) if word not in said]
    return any(word in strong for strong in _STRONG.values() for word in own)


def _leading(*hits: dict[str, int]) -> list[str]:
    """The languages that have the most words of grammar of several texts together, or nearly so: related languages
    share many of them."""
    sums = {code: sum(part[code] for part in hits) for code in hits[0]}
    most = max(sums.values())
    return [code for code, count in sums.items() if count > _NEAR * most] if most else list(sums)


def _running_words(text: str) -> list[str]:
    """The words in lower case, and the first one, which do not stand between words with capitals."""
    words = [word.strip("¿¡.,;:?!()\"“”„«»'’") for word in text.split()]
    kept: list[str] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place > 1 else ""
        after = words[place + 1] if place + 1 < len(words) else ""
        in_title = before[:1].isupper() and after[:1].isupper()
        if word and (place == 0 or word.islower()) and not in_title:
            kept.extend(words_of(word).split())
    return kept


_WEAK = frozenset(
    words_of(
        "der das dem den des die el los las il gli o os as uma um da do dos das no na em e y u un una ein eine des du "
        "au "
        "aux et la le les van von het een te of en im am di della dei del con per su al sur a i san de qu at on an it "
        "its "
        "in by que son come men"
    ).split()
)
_STRONG = {
    code: frozenset(word for word in grammar_of(code) if word not in _WEAK and len(word) > 1)
    for code in ("en", "de", "fr", "es", "it", "pt", "nl")
}
