"""What a cold start knows of English: which spans of a statement can be asked for, and by which words.

Another language is another table of this shape, and rules for the order of its words.
"""

from __future__ import annotations

import re

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = (
    rf"(?:\d{{1,2}} (?:{_MONTHS}),? \d{{4}}|(?:{_MONTHS}) \d{{1,2}},? \d{{4}}|(?:{_MONTHS}) \d{{4}}|\d{{4}}-\d\d-\d\d)"
)
_JOINTS = " of the | of | the | de | von | van | la | le | du | da | di | al-|-| "

SPANS = (
    ("date", re.compile(rf"\b{_DATE}\b")),
    ("value", re.compile(r"(?:\bdefaults? (?:to|is|value is)|\b(?:is|are) equal to|\bequals) [\"'`]?([\w.+-]*\w)")),
    ("code", re.compile(r"`([^`\s]{2,40})`")),
    (
        "code",
        re.compile(
            r"(?<![\w.@/-])(?:[A-Za-z]\w*_\w+|[a-zA-Z_]\w+(?:\.[a-zA-Z_]\w+)+(?:\(\))?|[a-z]+[A-Z]\w*"
            r"|[a-z_]\w*\(\))(?![\w/])"
        ),
    ),
    ("year", re.compile(r"\b(?:1[0-9]|20)\d\d\b(?! ?[–-])")),
    ("name", re.compile(rf"\b[A-Z][\w'’-]*(?:(?:{_JOINTS})[A-Z][\w'’-]*)*")),
    ("number", re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%-]|[.,]\w)")),
)
"""Kinds of answers with the pattern of each (of the first group, if it has one), in the order in which they claim their
characters."""

NO_NAMES = re.compile(
    "The|It|He|She|In|This|That|A|An|If|Its|His|Her|They|Their|We|You|Your|Our|I|For|On|At|As|When|While|Where|After|"
    "Before|Since|During|Returns?|None|True|False|There|These|Those|Note|See|Each|All|Both|Some|Most|Many|Any|No|Not|But|"
    "And|Or|So|To|By|From|With|Use|Although|However|Also|One|Two|Other|Another"
)
"""Words that open a sentence with a capital letter and name nothing."""

PRONOUN = re.compile(
    r"^(?:(?P<own>Its|His|Her|Their)|He|She|It|They|(?:This|The) (?P<noun>film|album|song|book|novel|"
    r"town|village|city|company|function|method|class|module|command|option|package|program))\b "
)
"""How a sentence begins that goes on about the subject of its document."""

REFERS = re.compile(
    r"\b(?:this|these|those|such|other|another|above|below|following|previous|former|latter|here|it|they|he|she|i|we|us|our|you|your)\b",
    re.IGNORECASE,
)
"""What a question refers to outside of itself."""

SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bJr\.)(?<!\bvs\.)(?<!\bNo\.)"
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bca\.)\s+(?=[A-Z\"'`])|\n\s*\n|\s(?:-|•|→)\s(?!\d)"
)
DEPENDS = re.compile(
    r"^(?:If|When|While|Although|Though|Because|Since|Unless|Until|After|Before|For example|In other words|Similarly|"
    r"However|Also|Only|Note|But|And|Or|So|Thus|Hence|Therefore|Then|Otherwise|Finally|Instead|Likewise|Moreover)\b"
)
"""How a sentence begins that says nothing by itself, or something on a condition."""

OPENING = re.compile(r"(?:who|what|which|when|where|how|the) ")
VERB = r"(?:is|was|are|were|has|had|can|may|must|should|will|does|did)"
CLAUSE_END = re.compile(r"[,;:]|\.$| and | or | who | which | where | that | but | when | for | with ")
LISTED = re.compile(r"`?(?:,| and| or) (?:[A-Z`]|\w+[_.(]\w)")
"""What follows a name, or an identifier, that is one of several."""
_OPEN = (
    "a an the of in on at by to for from with as and or but not is was are were be been has had have that which who "
    "whose his her its their into between during until since than about after before when where while also only"
)
DESCRIBES = re.compile(rf" (?!(?:{_OPEN.replace(' ', '|')})\b)\w")
"""What follows a word that describes the next one: `the 1907 novel`, `an Italian poet`."""
OPEN_END = re.compile(rf"\b(?:{_OPEN.replace(' ', '|')}|directed|written|produced|starring|born|between \d+)$")
"""How a phrase ends that lacks its end."""
OPEN_STEM = re.compile(r"(?:,|\b(?:and|or|an?|the)) ?$")
"""What is before a question word that would be one of several, or have an article."""
OPEN_QUOTE = re.compile(r"[\"“]\s*$")
SPLIT = re.compile(r"(?:[.!?:]|\b[A-Z]\.) $")
"""What stands before the first word of a sentence, or the rest of a name with initials."""
ON = re.compile(r"\b(?:on|in)( the)? $")
TIME = re.compile(r"\b(?:on|in|from|since|until) $")
PLACE = re.compile(r"\b(?:in|at|near)( the)? $")
NO_PLACE = re.compile(
    rf"\b(?:War|Wars|Battle|Ages?|Revolution|Renaissance|League|Cup|Championships?|Olympics|Games|Awards?|Honours|Army|"
    rf"Navy|{_MONTHS})\b"
)
"""Names that follow `in` and are no places."""
BETWEEN = re.compile(r"\b(?:between|between \w+ and|early|late|mid|[A-Z]{2,}s?) $")
"""What stands before a number that says nothing alone: `between 1912 and 1920`, `RFC 1521`."""
_KIN = "daughter|son|child|wife|widow|husband|brother|sister|mother|father|uncle|aunt|niece|nephew|cousin|twin"
_WORK = (
    "actor|actress|singer|poet|writer|author|painter|(?!(?:play|check)?list )[a-z]+ist|composer|director|producer|"
    "king|queen|emperor"
)
PERSON = re.compile(
    rf"\b(?:by|with|(?:grand|half-|step)?(?:{_KIN}|housekeeper|pupil|student) (?:of|to)|mother|father|{_WORK}|"
    r"starring|stars|(?:married|engaged|lady-in-waiting) to) $"
)
OF_PERSON = re.compile(r"^(?:He|She|His|Her) |\bwas born\b|\(\s*born\b")
SOMEBODY = re.compile(r"\b(?:(?P<he>[Hh]e|[Hh]is)|[Ss]he|[Hh]er)\b")

BORN = re.compile(rf"^\s*\(\s*(?:born|b\.)[^()\d]{{0,40}}?(?P<born>{_DATE})")
LIVED = re.compile(rf"^\s*\([^()]*?(?P<born>{_DATE})[^()\d–—-]*[–—-][^()\d]*(?P<died>{_DATE})\s*\)")
"""The dates of a life, in the brackets after a name."""

_NATIONS = (
    "Afghan Albanian Algerian American Angolan Argentine Argentinian Armenian Australian Austrian Azerbaijani "
    "Bahraini Bangladeshi Belarusian Belgian Bolivian Bosnian Brazilian British Bulgarian Burmese Cambodian "
    "Cameroonian Canadian Chilean Chinese Colombian Croatian Cuban Cypriot Czech Danish Dominican Dutch "
    "Ecuadorian Egyptian English Estonian Ethiopian Filipino Finnish French Georgian German Ghanaian Greek "
    "Guatemalan Haitian Hungarian Icelandic Indian Indonesian Iranian Iraqi Irish Israeli Italian Jamaican "
    "Japanese Jordanian Kazakh Kenyan Korean Kuwaiti Latvian Lebanese Liberian Libyan Lithuanian Macedonian "
    "Malaysian Maltese Mexican Moldovan Mongolian Moroccan Mozambican Namibian Nepalese Nicaraguan Nigerian "
    "Norwegian Pakistani Palestinian Panamanian Paraguayan Peruvian Polish Portuguese Romanian Russian Rwandan "
    "Salvadoran Saudi Scottish Senegalese Serbian Singaporean Slovak Slovenian Somali Soviet Spanish Sudanese "
    "Swedish Swiss Syrian Taiwanese Tanzanian Thai Tunisian Turkish Ugandan Ukrainian Uruguayan Uzbek Venezuelan "
    "Vietnamese Welsh Yemeni Yugoslav Zambian Zimbabwean"
)
NATION = re.compile(rf"\b(?:{_NATIONS.replace(' ', '|')})\b")
NATIONALITY = re.compile(rf" (?:is|was) an? (?:[a-z]+ ){{0,2}}(?P<nation>{NATION.pattern}) [a-z]")
"""What follows the name of a person of one nationality."""

RELEASED = re.compile(
    r" (?:is|was) an? (?P<year>\d{4}) (?:(?!of |by |about )[\w'’-]+ ){0,6}?"
    r"(?:(?P<noun>film|album|song|single)|(?P<text>novel|book))\b"
)
"""What follows the name of a work that is dated by its kind: `is a 1947 crime film`."""

PAST = {
    participle: past
    for past, participle in (
        *(("began", "begun"), ("beat", "beaten"), ("chose", "chosen"), ("drew", "drawn"), ("drove", "driven")),
        *(("ate", "eaten"), ("gave", "given"), ("hid", "hidden"), ("knew", "known"), ("rode", "ridden")),
        *(("sang", "sung"), ("showed", "shown"), ("spoke", "spoken"), ("stole", "stolen"), ("took", "taken")),
        ("wrote", "written"),
    )
}
"""Past tenses of the participles that differ from them."""

_PARTICIPLE = rf"(?P<verb>[a-z]+ed|built|taught|bought|brought|sought|won|made|{'|'.join(PAST)})"
_DESCRIBED = (
    r"(?:(?!(?:of|from|in|by|with|for|on|to|at|as|about|near|after|before|but|that|which|who|whose|when|where|while|"
    r"never|not|only|often)\b)[\w'’-]+ )*"
)
BY_AGENT = re.compile(
    rf" (?:(?:was|were) (?:[a-z]+(?:ed|en) and )?|(?:is|was) (?:(?:an?|the) |(?=\d{{4}} )){_DESCRIBED})"
    rf"{_PARTICIPLE} by$"
)
"""What follows the name of a work, or of what was done, whose agent is asked for: ` is a 1947 film directed by`."""

OF_WHOLE = re.compile(
    r"(?: is| was|:) an? (?P<part>class|method|function|attribute|option|command|table|member|city|town|village|"
    r"district|municipality|song|chapter|character) of the (?P<whole>module|class|package|library|program|band|group|"
    r"province|district|state|country|county|region|album|novel|series)$"
)
"""What follows the name of a part: ` is a class of the module`, `: a function of the module`."""

OF_KIND = re.compile(
    rf"(?:is|was) an? (?P<kind>{_DESCRIBED})(?<!\band )(?<!ly )(?<!first )"
    rf"(?P<said>(?:[a-z]+(?:ed|en) and )?{_PARTICIPLE} by .*)"
)
"""What is said of a work by its kind: `is a 1947 film directed by Ada Birk`."""

ENDS_OPEN = re.compile(
    rf" {VERB} (?!an? )(?:(?!and |or |but |not |never )[\w'’.-]+ )+(?:by|of|to|in|at|near|from|for|with|on|as|after)$"
)
"""What follows the name of a subject, if only what is asked for is missing: ` was married to`."""

OWN = re.compile(
    r"(?P<whose>['’]s(?: (?!(?:that|the|an?)\b|[\w-]+ed\b)[\w-]+){0,2}"
    r" (?!(?:wife|husband|mother|father|son|daughter|brother|sister)\b)[\w-]+) (?P<is>is|was)$"
)
"""What follows the name of an owner, up to what is asked for: `'s base class is`."""
