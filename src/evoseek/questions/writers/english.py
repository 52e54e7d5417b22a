"""What a cold start knows of English: which spans of a statement can be asked for, and by which words.

Another language is another table of this shape, and rules for the order of its words.
"""

from __future__ import annotations

import re

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = (
    rf"(?:\d{{1,2}} (?:{_MONTHS}),? \d{{4}}|(?:{_MONTHS}) \d{{1,2}},? \d{{4}}|(?:{_MONTHS}) \d{{4}}|\d{{4}}-\d\d-\d\d)"
)
_JOINTS = (
    " of the | of | the | & | de la | de los | de las | de | del | della | dos | das | do | du | da | di | la | le | "
    "von der | von dem | von | van der | van den | van de | van | bin | ibn | al-|-| "
)
_TITLES = "Mr|Mrs|Ms|Dr|Prof|St|Lt|Col|Gen|Capt|Sgt|Maj|Rev|Gov|Sen"
_LARGE = "thousand|million|billion"
_UNIT = "(?:(?:milli|micro)?seconds?|minutes?|hours?|days?|(?:kilo|mega|giga|tera)?bytes?)\\b"
_NUMERALS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"

SPANS = (
    ("date", re.compile(rf"\b{_DATE}\b")),
    (
        "value",
        re.compile(
            r"(?:\bdefaults? (?:to|(?:(?:value|setting) )?(?:(?:of|for) (?:[\w-]+ ){0,3}[\w.-]+ )?(?:is|are))"
            r"|\b(?:is|are) equal to|\bequals) [\"'`]?"
            rf"([\w.+-]*\w(?: (?:{_LARGE}))?(?: {_UNIT})?)"
        ),
    ),
    ("version", re.compile(r"\b[Vv]ersion (\d+(?:\.\d+)+)")),
    ("code", re.compile(r"`([^`\s]{2,40})`")),
    (
        "code",
        re.compile(
            r"(?<![\w.@/-])(?:[A-Za-z]\w*_\w+|[a-zA-Z_]\w+(?:\.[a-zA-Z_]\w+)+(?:\(\))?|[a-z]+[A-Z]\w*"
            r"|[a-z_]\w*\(\))(?![\w/])"
        ),
    ),
    ("code", re.compile(r"(?<![\w.~/-])/(?:[a-z][\w.+-]*/)+[\w+-]*(?:\.[\w+-]+)*(?![\w/])")),
    (
        "code",
        re.compile(
            r"(?<=[Tt]he )(?!(?:non|built|stand|old|new|well|self|so|high|low|long|short|real|third|command|pre|post|"
            r"per|multi|cross|full|open|double|user|client|server)-)[a-z][a-z0-9]+(?:[-.][a-z0-9]+)+(?<!ed)(?<!ing)(?<!-free)"
            r"(?<!-specific)(?<!-style)(?<!\.conf)"
            r"(?= (?:command|daemon|package|program|script|utility)\b(?! [\w.-]*[_A-Z]))"
        ),
    ),
    ("year", re.compile(r"(?<![\w/:$€£.-])(?:1[0-9]|20)\d\d\b(?! ?[–-]|[/:])")),
    ("name", re.compile(rf"\b(?:(?:{_TITLES})\. )*[A-Z][\w'’-]*(?:(?:{_JOINTS})[A-Z][\w'’-]*)*\b(?!@)")),
    (
        "number",
        re.compile(
            rf"(?<![\w.,/:$€£\\-])(?:\d+(?:,\d{{3}})*(?:\.\d+)?(?: (?:{_LARGE}))?|{_NUMERALS})(?![\w%/:-]|[.,]\w)"
        ),
    ),
)
"""Kinds of answers with the pattern of each (of the first group, if it has one), in the order in which they claim their
characters."""

NO_NAMES = re.compile(
    rf"{_MONTHS}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?|"
    "The|It|He|She|In|This|That|A|An|If|Its|His|Her|They|Their|We|You|Your|Our|I|For|On|At|As|When|While|Where|After|"
    "Before|Since|During|Returns?|None|True|False|There|These|Those|Note|See|Each|All|Both|Some|Most|Many|Any|No|Not|But|"
    "And|Or|So|To|By|From|With|Use|Although|However|Also|One|Two|Other|Another|Formerly|Previously|Because|Normally|"
    "Usually|normally|usually|typically|named|it|them"
)
"""Words that open a sentence with a capital letter and name nothing, and what is no date by itself."""

VERB = r"(?:is|was|are|were|has|had|can|may|must|should|will|does|did)"

PRONOUN = re.compile(
    r"^(?:(?P<own>Its|His|Her|Their)|He|She|It|They|(?:This|The) (?P<noun>film|album|song|book|novel|"
    r"town|village|city|company|function|method|class|module|command|package|program))\b "
)
"""How a sentence begins that goes on about the subject of its document."""
NOUN_GOES_ON = re.compile(rf"(?:[a-z]+(?<!s)(?<!ed)(?<!ly)(?<!\balso)(?<!\bfirst)|[a-z]+s {VERB})\b")
"""What follows a noun that is only the first part of a name: `the company` car is, `the company` cars are."""

DEFAULT = re.compile(r"^(?:The|Its) default (?:value |setting )?is (?!to\b|that\b)")
"""How a sentence begins that says the default of what it is under."""

EXPLETIVE = re.compile(
    r"^It (?:[a-z]+ )?(?:is|was|be|been) (?:(?:not|also|always|never|now|often|usually|generally|still|"
    r"sometimes|then|therefore|thus|very) )*"
    r"(?:safe|harmless|legal|illegal|valid|possible|impossible|necessary|important|essential|useful|common|customary|"
    r"normal|easy|difficult|best|better|likely|unlikely|sufficient|recommended|required|suggested|assumed|conjectured|"
    r"believed|thought|estimated|noted|reported|announced|expected|planned|hoped|up|an error|a mistake|a good idea|"
    r"common practice|good practice|"
    r"the responsibility of [\w ]+) (?:for [\w ]+ )?(?:to|that|whether|for)\b"
)
"""How a sentence begins whose `It` stands for nothing: `It is safe to`, `It must be harmless to`."""

REFERS = re.compile(
    r"\b(?:this|these|those|such|other|another|above|below|following|previous|former|latter|here|it|they|he|she|i|we|us|our|you|your)\b",
    re.IGNORECASE,
)
"""What a question refers to outside of itself."""

_ABBREVIATIONS = rf"{_TITLES}|[A-Z]|Jr|vs|No|Mt|Inc|e\.g|i\.e|ca"
_NO_ABBREVIATION = "".join(rf"(?<!\b{short}\.)" for short in _ABBREVIATIONS.split("|"))
SENTENCE_END = re.compile(rf"(?<=[.!?]){_NO_ABBREVIATION}\s+(?=[A-Z\"'`])|\n\s*\n|\f|§(?! ?\d)|\s(?:-|•|→)\s(?!\d)")
WHOLE = re.compile(r"[.!?][\"'”’)]*$")
"""How a sentence ends that is no heading."""
HEADING = re.compile(r"^([A-Z\d][^\n]{0,60}[^\n.!?:;,])\n(?=[A-Z])", re.MULTILINE)
"""A line without an end, before one that begins a sentence."""
DEPENDS = re.compile(
    r"^(?:If|When|While|Although|Though|Because|Since|Unless|Until|After|Before|For example|In other words|Similarly|"
    r"However|Also|Only|Note|But|And|Or|So|Thus|Hence|Therefore|Then|Otherwise|Finally|Instead|Likewise|Moreover)\b"
    r"|\d+(?:\.\d+)+ (?=[A-Z])"
)
"""How a sentence begins that says nothing by itself, or something on a condition, or is behind a section's number."""

POINTS = re.compile(
    r"(?:This|These|That|Those|Such|See|Refer to|Consult|Specify|The (?:following|above|same|latter|former)) "
)
"""How a sentence begins that needs the one before, or is an instruction."""

OPENING = re.compile(r"(?:who|what|which|when|where|how|the) ")
QUESTION = re.compile(r"(?:Who|What|Which|When|Where|How) ")
_COMMA = r",(?!\d|(?<=\d,) \d{4}\b)"  # not that of a number or a date
_STATEMENT = rf"(?:it|they|then|(?:(?:the |no )?\S+ )?\S+ {VERB})\b"
WHOLE_END = re.compile(rf"{_COMMA}|[;:]|\.$|(?<=[a-z]{{4}})\.(?= [A-Z])| but |(?: and| or)(?= {_STATEMENT})")
"""Where a clause ends with all that restricts it."""
CLAUSE_END = re.compile(rf"{WHOLE_END.pattern}| and | or | who | which | where | that | when ")
CONTINUES = re.compile(rf" (?:and|or) (?!(?:it|they|then|{VERB[3:-1]})\b)|, either |, [\w-]+(?: [\w-]+)?,? (?:and|or) ")
"""How a phrase goes on that is cut: ` and feature enhancements`, `, deleted, or modified`."""
RELATIVE = re.compile(" (?:that|which|who|whose|where|when|and|or)\\b")
"""What follows a name of which something is said before the statement, or that is one of several: `the flag that is
set`, `the flag and the mode`."""
CONDITION = re.compile(r"[,;:]?(?: and)? ?\b(?:if|unless|until|when|provided|except|as long as)\b")
"""What may follow the end of a clause that is not true without it."""
LISTED = re.compile(r"`?(?:,| and| or) (?:[A-Z`]|\w+[_.(]\w|[a-z]+[A-Z])")
"""What follows a name, or an identifier, that is one of several."""
OPEN = (
    "a an the of in on at by to for from with as and or but not is was are were be been has had have that which who "
    "whose his her its their into between during until since than about after before when where while also only"
)
_NO_OPEN = rf"(?!(?:{OPEN.replace(' ', '|')})\b)"
BEGINS = re.compile(rf"(?:(?:The|An?) (?:{_NO_OPEN}[a-z][a-z-]+ ){{0,2}})?")
"""How a statement begins about what comes next: `The `, `The system catalog `."""
DESCRIBES = re.compile(rf" {_NO_OPEN}\w")
"""What follows a word that describes the next one: `the 1907 novel`, `an Italian poet`."""
OPEN_END = re.compile(
    rf"\b(?:{OPEN.replace(' ', '|')}|if|so|such|because|unless|either|both|directed|written|produced|starring|born|"
    rf"{VERB[3:-1]}|might|could|would|"
    r"showing|containing|including|indicating|specifying|to (?:indicate|signal|specify|assume)|"
    r"indicat(?:e|es|ing) that (?:an?|the|no) [\w-]+|"
    r"(?:between|both|either|neither)(?: (?!and\b|or\b|nor\b)\S+)+)$"
)
"""How a phrase ends that lacks its end."""
OPEN_STEM = re.compile(r"(?:,|\b(?:and|or|an?|the)) ?$")
"""What is before a question word that would be one of several, or have an article."""
OPEN_QUOTE = re.compile(r"[\"“]\s*$")
SPLIT = re.compile(r"(?:[.!?:]|\b[A-Z]\.) $")
"""What stands before the first word of a sentence, or the rest of a name with initials."""
ON = re.compile(r"\b(?:on|in)( the)? $")
TIME = re.compile(r"\b(?:on|in|from|since|until) $")
PLACE = re.compile(r"\b(?:in|at|near)( the)? $")
LANGUAGE = re.compile(r"\b(?:written|rewritten|translated|implemented|fluent|available) in $")
"""What stands before a name that is more often a language than a place."""
ONE_OF = re.compile(r"\bone of\b")
NO_PLACE = re.compile(
    rf"[a-z][A-Z]|\b(?!USA?\b|UK\b)[A-Z]{{2}}|[\d_]|\b(?:War|Wars|Battle|Ages?|Revolution|Renaissance|League|Cup|"
    rf"Championships?|Olympics|Games|Awards?|Honours|Army|"
    rf"Navy|{_MONTHS})\b"
)
"""Names that follow `in` and are no places: wars, months, and what is spelled as programs are."""
BETWEEN = re.compile(r"(?:\b(?:between|between \w+ and|early|late|mid|[A-Z]{2,}s?)|['’]s?) $")
"""What stands before a number that says nothing alone: `between 1912 and 1920`, `RFC 1521`, `the women's 200 m`."""
NUMBERED = re.compile(r"\b(?:(?!(?:In|About|Over|Only|Some|Nearly)\b)[A-Z][A-Za-z]+|from [\d.,]+ to) $")
"""What stands before a number that is a part of a name, or of a range: `Mariner 10`, `from 10 to 20`."""
UNIT = re.compile(r"\d $")
"""What stands before the unit of a number: `10 EUR`."""
AGAIN = re.compile(r"\b\d{4},? and\b")
"""What stands before the second of two dates: `by Oro in 1777 and by Tarn in 1790`."""
_KIN = "daughter|son|child|wife|widow|husband|brother|sister|mother|father|uncle|aunt|niece|nephew|cousin|twin"
_WORK = (
    "actor|actress|singer|poet|writer|author|painter|(?!(?:play|check)?list )[a-z]+ist|composer|director|producer|"
    "king|queen|emperor"
)
OFFICE = (
    "(?:chief )?executive(?: officer)?|C[A-Z]O|head|manager|owner|founder|chair(?:man|woman|person)?|president|deputy|"
    "secretary|treasurer|minister|chancellor|mayor|governor|captain|leader|editor|director|officer|lead"
)
PERSON = re.compile(
    rf"\b(?:{OFFICE})(?: (?:of|for) (?:[\w'’-]+ ){{1,6}}| )(?:is|was) $|"
    rf"\b(?:by|with|(?:grand|half-|step)?(?:{_KIN}|housekeeper|pupil|student) (?:of|to)|mother|father|{_WORK}|"
    r"starring|stars|married(?: to)?|(?:engaged|lady-in-waiting) to) $"
)
OF_PERSON = re.compile(r"^(?:He|She|His|Her) |\bwas born\b|\(\s*born\b")
SOMEBODY = re.compile(r"\b(?:(?P<he>[Hh]e|[Hh]is)|[Ss]he|[Hh]er)\b")
OF_THING = re.compile(
    r"^(?:The|Our|An?) |^(?!.*\b(?:is|was|are|were|born)\b)(?!.*\(\D*\d)|"
    r" (?:is|was|are|were) (?:(?!(?:of|in|for|on|at|and|by|with)\b)[\w'’-]+ ){1,5}?"
    r"(?:team|department|company|group|unit|office|desk|division|station|project|service|organi[sz]ation|agency|page|"
    r"committee|board|branch|site|depot|list|guide)\b"
)
"""How the first sentence of a page is that is about nobody."""
NAME = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’.-]*){1,3}")
"""A heading that may be the name of somebody."""
NO_PERSON = re.compile(r"^(?:The|Our) |(?<![\w'’-])[a-z]{4}")  # `van der` has less
"""What no name of somebody has: an article, or a common word."""
GOES_ON = re.compile(r"(?!(?:His|Her)\b)(?=.*\b(?:[Hh]e|[Ss]he)\b)")
"""A sentence about somebody already named, unless it is about somebody of theirs: `Her deputy`."""

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
    rf" (?:(?:was|were) (?:[a-z]+(?:ed|en) and )?|(?:is|was) (?:(?:an?|the) |(?=\d{{4}} ))(?P<work>{_DESCRIBED}))"
    rf"{_PARTICIPLE} by$"
)
"""What follows the name of a work, or of what was done, whose agent is asked for: ` is a 1947 film directed by`."""

AGENTS = {
    "composed": "composer",
    "created": "creator",
    "designed": "designer",
    "developed": "developer",
    "directed": "director",
    "edited": "editor",
    "founded": "founder",
    "illustrated": "illustrator",
    "invented": "inventor",
    "painted": "painter",
    "performed": "performer",
    "produced": "producer",
    "published": "publisher",
    "translated": "translator",
    "written": "writer",
}
"""Nouns for the agents of participles."""
MADE_BY = re.compile(rf"\b(?:{'|'.join(AGENTS)}|released|recorded|sung|album|music|single|song) by $")
"""What stands before a band's name in capital letters, which is somebody's: `a song by`."""
WORK = re.compile(
    r"\b(album|book|film|game|magazine|musical|newspaper|novel|opera|painting|play|poem|series|show|single|song|story)"
    r" (?:[a-z]+(?:ed|en) and )?$"
)
"""The noun of a work, before what is said of it: `1947 film `, `novel written and `."""

WHO_OR_WHAT = re.compile(
    r"(?:(?! (?:of|in|on|for|from|with|that|which|who)\b).)*?\b"
    rf"(?:(?P<people>(?:grand|half-|step)?(?:{_KIN})|{_WORK}|activist|architect|athlete|bishop|coach|countess|dancer|"
    r"duke|earl|editor|engineer|explorer|inventor|journalist|lawyer|(?!human\b)[a-z]*(?:man|woman)|monk|officer|"
    r"philosopher|photographer|player|politician|pope|president|priest|prince|princess|professor|rapper|ruler|saint|"
    r"scholar|sculptor|soldier|sultan|teacher|(?!(?:amphibian|civilian|guardian|vegetarian)\b)[a-z]+ian|[a-z]+baller|"
    r"[a-z]+(?:maker|writer))"
    r"|(?:album|book|documentary|film|game|magazine|musical|newspaper|novel|opera|painting|play|poem|program|series|show|"
    r"single|song|story)"
    r"(?= (?:about|based|by|directed|for|from|in|of|on|produced|released|shot|starring|that|which|written)\b|$))\b"
)
"""What is said of somebody (`people`) or of a work, up to the first noun of either kind: `an English rapper`, `a film
about a rapper`, but not `a species of amphibian`."""

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

FIRST_PHRASE = re.compile(
    r"(?!\w+ (?:the )?(?:addition|fact|general|particular|turn|meanwhile|meantime|contrast|contrary|short|summary|all|"
    r"other|first|last|least|instance|example|this|that|these|those|such|"
    r"his|her|its|their|time|some|most|many|case)\b)"
    r"(?:On|Upon|In|At|For|With|Without|During|Since|Under|From|Within|Unlike) "
    r"(?:(?!(?:and|or|but|which|that|who|whose|where|when|what)\b)[\w'’./-]+ ){0,5}[\w'’./-]+(?=, \w)"
)
"""What may stand before the subject of a sentence, and as well at its end: `On success, `."""

VERSION = re.compile(r"(?:\b([A-Z]\w+) )?\b[Vv]ersion $")
"""What stands before the number of a version, with the name of what has it."""
ARTICLE = re.compile(r"(?:The|An?|Each|Every|All|Most|Some|Many) ")
COMMON = re.compile(rf"{ARTICLE.pattern}|(?!{NATION.pattern})[A-Z][a-z]+ [a-z]")
"""How a sentence begins whose first word has its capital letter only there: `The `, `Two separate`, `Cache sharing`."""
NO_SUBJECT = re.compile(
    r"[,;:\"“”]|^(?:In|On|At|For|With|By|From|To|After|Before|During|Since|Under|Of|As|Use|Using|There|What|Which|Who|"
    r"How|Note|[A-Z][a-z]+(?:ed|ing| the| an?))\b|"
    r"\b(?:that|which|who|whom|whose|where|when|if|while|because|than|and|or|but|not|said|thought|knew|became|saw|"
    r"found|went|came|left|met|kept)\b"
)
"""What no subject of a clause has that is easily told from the rest of its sentence."""
COORDINATES = re.compile(
    rf"{_COMMA}|[;:()\"“”—]|\. |"
    r"\b(?:and|or|but|that|which|who|whom|whose|where|when|while|if|because|so|than|as well)\b"
)
"""What joins clauses, or parts of one, from which nothing is moved to the front."""
_JOINING = "(?:about|after|against|as|at|by|for|from|in|into|like|near|of|on|to|using|with)"
PARTICIPLE = re.compile(rf" (?:(?:also|been) )*(?:[a-z]+ed|built|held|led|won|made|{'|'.join(PAST)})\b")
OPEN_PREDICATE = re.compile(rf"(?:\b{_JOINING}|{PARTICIPLE.pattern}) ?$")
"""How a predicate ends from which only what is asked for is missing."""
DESCRIBED = re.compile(rf" (?:an?|the) .*(?:(?:ed|ing)\b|\bby ?$|\b{_JOINING}\b.*\b{_JOINING} ?$)")
"""A noun with a participle, or two phrases: ` a film based on a novel by`, ` an actor in the north of`."""
PREPOSITION_END = re.compile(r"\b(?:from|to|until|till|since|through|between|by|of|with|for) ?$")
ADVERBIAL = re.compile(
    r" (?:in|on|at|by|to|from|for|with|as|into|during|since|until|between|than|about|after|before|per)\b"
)
"""Where a phrase begins that stays behind its verb."""

_VERBS = (
    "accept act add allow appear apply attend become begin belong build call carry cause change compete compile "
    "compute consist contain control convert cover create debut define depend describe design determine die direct "
    "divide earn enable end establish evaluate execute exist extend feature fetch form gain generate get give graduate "
    "have hold host identify ignore implement include indicate inherit insert introduce invent invoke join last lead "
    "live lie load maintain make manage marry mean measure modify move need obtain offer open operate own perform play "
    "prevent produce provide publish raise reach read receive record refer release remain remove replace represent "
    "require reside return rule run satisfy save scan score sell serve set show specify spend stand star start state "
    "stop store study succeed supply support take teach tell treat use validate visit win work write"
)
_NOUNS = (
    "act build call cause change control cover design end feature form gain host lead load measure move need offer "
    "play record release rule run scan score set show stand start state stop study visit win work"
)
"""Verbs whose third person is as often a noun."""
_IRREGULAR = {
    "became": "become",
    "began": "begin",
    "built": "build",
    "gave": "give",
    "got": "get",
    "had": "have",
    "held": "hold",
    "led": "lead",
    "made": "make",
    "meant": "mean",
    "ran": "run",
    "sold": "sell",
    "spent": "spend",
    "stood": "stand",
    "taught": "teach",
    "told": "tell",
    "took": "take",
    "won": "win",
    "wrote": "write",
}


def _present(verb: str) -> str:
    """The third person of a regular verb: `carries`, `teaches`, `uses`."""
    if re.search("[^aeiou]y$", verb):
        return f"{verb[:-1]}ies"
    return f"{verb}es" if re.search("(?:s|x|z|ch|sh)$", verb) else f"{verb}s"


def _past(verb: str) -> str:
    """The past of a regular verb: `carried`, `used`, `starred`, `called`."""
    if re.search("[^aeiou]y$", verb):
        return f"{verb[:-1]}ied"
    if verb in ("refer", "star", "stop"):
        return f"{verb}{verb[-1]}ed"
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


_UNCHANGED = ("have", "lie", "read", "set")  # their past is another word, or none
FINITE = {
    **{_past(verb): ("did", verb) for verb in _VERBS.split() if verb not in (*_IRREGULAR.values(), *_UNCHANGED)},
    **{past: ("did", verb) for past, verb in _IRREGULAR.items() if verb != "have"},
    **{_present(verb): ("does", verb) for verb in _VERBS.split() if verb != "have" and verb not in _NOUNS.split()},
}
"""Forms of common verbs, with the auxiliary that stands before the subject of a question and the verb that stays."""

_THIRD_PERSONS = "|".join(_present(verb) for verb in _VERBS.split() if verb not in _NOUNS.split())
_ALSO_PLURALS = "|".join(_present(verb) for verb in _NOUNS.split())
_STATES = (
    rf"(?:(?:{_THIRD_PERSONS}) (?!of |(?:NULL|null|true|false|zero|nothing)\b)"
    rf"|(?:{_ALSO_PLURALS}) (?=(?:the|an?|all|any|each|every|whether|how|its|one|up)\b))"
)
DOES = re.compile(f"(?i:{_STATES})")
"""How a sentence begins that says what its heading does: `Sets the`."""
STATES = re.compile(
    r" (?!(?:is|was) an? (?!.*\b(?:that|which)\b))"
    rf"(?:{_STATES}|{VERB} (?!(?:(?:be )?(?:added|removed|deprecated)|not|no|only|also|in|from) ))"
)
"""What follows an identifier of which something is said that is not said of many: `is a method` alone is."""
PURPOSE = re.compile(
    rf"^(?P<name>\S[^\n]{{0,80}}?) (?:[—–]|--?) "
    rf"(?P<said>(?!(?:{OPEN.replace(' ', '|')}|then|now|once|formerly)\b)[a-z][a-z-]*(?<![^s]s)(?<!ing) "
    r"(?:(?:and|or) [a-z-]+ )?(?:an?|the|one|all) \w[^\n\r.;:()—–|?]{0,200}?)[ .]*\r?$",
    re.MULTILINE,
)
"""A line that says what a command is for: `pg_dump - extract a database`."""

_NO_NOUNS = (
    f"{OPEN} late then famous former great young old new first second third last next same other own original entire "
    "main popular current recent input corresponding successful single specified given top-level initial next-to-last "
    "default optional required underlying"
)
NOUN = re.compile(rf"\b[Tt]he (?P<noun>(?:[a-z][a-z-]+ )?(?!(?:{_NO_NOUNS.replace(' ', '|')})\b)[a-z][a-z-]+) $")
"""What stands before a name that it is the name of: `the poet `, `the preprocessor macro `."""

HALF = re.compile(
    rf"\b(?:[Tt]he|[Aa]n?|[Ee]ach|[Ee]very|[Ss]ame|[Aa]ny|[Aa]ll|[Nn]o) (?:(?!(?:{OPEN.replace(' ', '|')}|named|"
    r"called|[a-z]+(?:ed|ing))\b)[a-z][\w-]* ){1,3}$"
)
"""What stands before the last part of a phrase: `the backup `, `a single `."""
CLAUSE = re.compile(r" (?:if|unless) (?!and only)[^,;:()\"“”—]+$")
"""A condition at the end of a statement, which stays at the end of its question."""
IN_CONDITION = re.compile(r" (?:if|unless) [^,;:()]*$")
"""What stands before a part of such a condition."""
CONDITIONAL = re.compile(
    r"(?P<word>If|Unless) (?P<condition>[^,;:()]{8,100}), (?:then )?(?P<said>[^;:]+)(?P<end>[.!])$"
)
"""A statement that begins with its condition."""
NAMED = re.compile(
    r"\b(?:album|award|band|book|character|church|city|class|club|college|company|country|county|department|district|"
    r"duke|earl|emperor|family|film|function|game|genus|governor|group|island|king|label|lake|language|library|magazine|"
    r"method|minister|module|mountain|newspaper|novel|opera|package|party|play|poem|pope|president|prize|province|"
    r"pseudonym|queen|region|river|school|series|show|single|song|state|suite|team|town|tribe|university|village)$"
)
"""Nouns of things that are named: `the river Oro`."""

HEDGED = re.compile(
    r"\b(?:not|neither|nor|never|no longer|unlikely|almost|nearly|allegedly|reportedly|probably|possibly|supposedly|"
    r"rumou?red|might|(?:was|were|said|claimed|believed|thought|expected|planned|intended|supposed|due|refused|failed|tried|"
    r"attempted) to)\b|n['’]t\b"
)
"""What makes a statement say another thing than its question would."""
FRAGMENT = re.compile(r"[a-z]+(?:-[a-z]+)* ")
"""How the rest of a statement begins whose first part is elsewhere: in a table, or in a list."""
_ASKED_IN_TOKEN = r"what|which|where|when|who"
BROKEN = re.compile(
    rf"[:./\\_'(\[](?:{_ASKED_IN_TOKEN})\b|\b(?:{_ASKED_IN_TOKEN})[./\\_'\])]\w|\.\.\.|\[ ?\w"
    r"|[^\d\s]\. ?\d[\d.]*(?:$| if\b| unless\b)|\bone of [\w.]+$|\w (?:The|This|If|It|An) [a-z]|[a-z]{24}"
)
"""What a question holds that asks for a part of an identifier, or of a list, or is of a synopsis, before a section's
number, or behind a heading, or whose spaces are lost."""
MISSTATED = re.compile(
    r"^(?:Who|What|Which|When|Where|How) .*\b(?:who|what|which)\b|\ban? (?:[\w-]+ ){1,3}(?:named|called)$|"
    r"\b(?:like|last|a call to|beginning|approximately|any|one of|(?<!known )(?<!named )as)$|"
    r"\b(?:an?|the) (?:[a-z]+ed|\w+_\w+)$|^What (?:does |is )?(?:of|for|after) |^(?:Who|What|Which)(?: \w+){0,2} also |"
    r"^Which [\w ]*[^suia\W]s (?:is|was|does|has)\b|^What is the name of an? |"
    r"^What is the default of \S+ (?!if |unless |in |for )|"
    r"^Which [\w ]*(?<!e)ed (?:is|are|was|does) |"
    r"\bthat (?:when|if|while) |"
    r"\b(?:of|with|as|in|on|at|about) "
    r"(?:of|to|in|on|at|by|from|with|for|as|within|into) (?!order)|"
    rf"^How many (?!(?:{_NO_OPEN}[\w-]+ ){{0,3}}"
    rf"(?:{_NO_OPEN}[\w-]*[^\W_s]s|people|men|women|children|percent|feet|data)\b)"
)
"""What a question in natural order holds whose statement asked, or lacks what it was before (`built around an object
named`), or its end, or is of one of several, or whose words are in no order (`set to on Linux`, `how many expression
is`)."""
UNSAID = re.compile(
    r"\bthe (?:(?:old|newer|necessary)\b|(?:fix|strategy|values?)$"
    r"|(?:call|callback|module|name|operation)\b(?! (?:of|that|to)\b))"
)
"""What a question cannot be understood by that names nothing: `the value`, of what?"""
TWO_SENTENCES = re.compile(r"[a-z0-9]{2}[.!?][\"”]?\s(?!\d)|\. (?:The|This|It|If|In|A) ")
