"""The rules' patterns for English: the spans of a statement that can be asked for, and the question words.

Each pattern is named after its matches. tests/questions/writers/rules_en/examples.toml has example sentences.
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
_NUMERALS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"

SPANS = {
    "date": re.compile(rf"\b{_DATE}\b"),
    "year": re.compile(r"(?<![\w/:$€£.-])(?:1[0-9]|20)\d\d\b(?! ?[–-]|[/:])"),
    "name": re.compile(rf"\b(?:(?:{_TITLES})\. )*[A-Z][\w'’-]*(?:(?:{_JOINTS})[A-Z][\w'’-]*)*\b(?!@)"),
    "number": re.compile(
        rf"(?<![\w.,/:$€£\\-])(?:\d+(?:,\d{{3}})*(?:\.\d+)?(?: (?:{_LARGE}))?|{_NUMERALS})(?![\w%/:-]|[.,]\w)"
    ),
}
"""Kinds of answers with the pattern of each, in the order in which they claim their characters."""

NO_NAME = re.compile(
    rf"{_MONTHS}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?|"
    "The|It|He|She|In|This|That|A|An|If|Its|His|Her|They|Their|We|You|Your|Our|I|For|On|At|As|When|While|Where|After|"
    "Before|Since|During|There|These|Those|Each|All|Both|Some|Most|Many|Any|No|Not|But|And|Or|So|To|By|From|With|"
    "Although|However|Also|One|Two|Other|Another|Formerly|Previously|Because"
)
"""A word that opens a sentence with a capital letter but is not a name, or not a date by itself."""

VERB = r"(?:is|was|are|were|has|had|can|may|must|should|will|does|did)"

PRONOUN = re.compile(
    r"^(?:(?P<own>Its|His|Her|Their)|He|She|It|They|(?:This|The) (?P<noun>film|album|song|book|novel|"
    r"town|village|city|company))\b "
)
"""The beginning of a sentence about the subject of its document."""
MODIFIED_NOUN = re.compile(
    r"(?!(?:became|began|had|has|made|took|won)\b)[a-z]+(?<!s)(?<!ed)(?<!ly)(?<!also)(?<!first)\b"
)
"""What follows a noun that is only the first part of a name: `the company` car is."""

EMPTY_IT = re.compile(
    r"^It (?:[a-z]+ )?(?:is|was|be|been) (?:(?:not|also|always|never|now|often|usually|generally|still|then|"
    r"therefore|thus|very) )*(?:[a-z]+ (?:that|whether)|(?:safe|legal|illegal|possible|impossible|necessary|important|"
    r"essential|useful|common|customary|normal|easy|difficult|best|better|likely|unlikely|expected|planned|hoped|up|"
    r"common practice|a good idea|the responsibility of [\w ]+) (?:for [\w ]+ )?(?:to|for))\b"
)
"""The beginning of a sentence whose `It` stands for nothing: `It is safe to`, `It was thought that`."""

POINTS_OUTSIDE = re.compile(
    r"\b(?:this|these|those|such|other|another|above|below|following|previous|former|latter|here|it|they|he|she|i|we|us|our|you|your)\b",
    re.IGNORECASE,
)
"""A reference to something outside the question."""

_ABBREVIATIONS = rf"{_TITLES}|[A-Z]|Jr|vs|No|Mt|Inc|e\.g|i\.e|ca"
_NO_ABBREVIATION = "".join(rf"(?<!\b{short}\.)" for short in _ABBREVIATIONS.split("|"))
SENTENCE_END = re.compile(rf"(?<=[.!?]){_NO_ABBREVIATION}\s+(?=[A-Z\"'`])|\n\s*\n|\f|\s(?:-|•|→)\s(?!\d)")
SENTENCE = re.compile(r"[.!?][\"'”’)]*$")
"""The end of a sentence, which a heading does not have."""
HEADING = re.compile(r"^([A-Z\d][^\n]{0,60}[^\n.!?:;,])\n(?=[A-Z])", re.MULTILINE)
"""A line without an end, before one that begins a sentence."""
NEEDS_CONTEXT = re.compile(
    r"^(?:(?:If|When|While|Although|Though|Because|Since|Unless|Until|After|Before|For example|In other words|"
    r"Similarly|However|Also|Only|Note|But|And|Or|So|Thus|Hence|Therefore|Then|Otherwise|Finally|Instead|Likewise|"
    r"Moreover|This|These|That|Those|Such|See|Refer to|The (?:following|above|same|latter|former))\b|"
    r"\d+(?:\.\d+)+ (?=[A-Z]))"
)
"""The beginning of a sentence that says nothing by itself, or is an instruction."""
FRAGMENT = re.compile(r"[a-z]+(?:-[a-z]+)* ")
"""The beginning of the rest of a statement whose first part is elsewhere: in a table, or in a list."""

INTERROGATIVE = re.compile(r"(?:who|what|which|when|where|how) ", re.IGNORECASE)
_COMMA = r",(?!\d|(?<=\d,) \d{4}\b)"  # not within a number or a date
CLAUSE_END = re.compile(rf"{_COMMA}|[;:]|\.$|(?<=[a-z]{{4}})\.(?= [A-Z])| (?:but|and|or|who|which|where|that|when) ")
CONTINUED_PHRASE = re.compile(
    rf" (?:and|or) (?!(?:it|they|then|{VERB[3:-1]})\b)|, either |, [\w-]+(?: [\w-]+)?,? (?:and|or) "
)
"""The rest of a phrase that was cut: ` and feature enhancements`, `, deleted, or modified`."""
CONDITION = re.compile(r"[,;:]?(?: and)? ?\b(?:if|unless|until|when|provided|except|as long as)\b")
"""What follows the end of a clause that is not true without it."""
LISTED = re.compile(r"(?:,| and| or) [A-Z]")
"""What follows a name that is one of several."""
FUNCTION_WORDS = (
    "a an the of in on at by to for from with as and or but not is was are were be been has had have that which who "
    "whose his her its their into between during until since than about after before when where while also only"
)
MODIFIER = re.compile(rf" (?!(?:{FUNCTION_WORDS.replace(' ', '|')})\b)\w")
"""What follows a word that describes the next one: `the 1907 novel`, `an Italian poet`."""
DANGLING_END = re.compile(
    rf"\b(?:{FUNCTION_WORDS.replace(' ', '|')}|if|so|such|because|unless|either|both|directed|written|produced|"
    rf"starring|born|{VERB[3:-1]}|might|could|would|including|"
    r"(?:between|both|either|neither)(?: (?!and\b|or\b|nor\b)\S+)+)$"
)
"""The end of a phrase that lacks its last word."""
ARTICLE_END = re.compile(r"(?:,|\b(?:and|or|an?|the)) ?$")
"""What is before a question word that would be one of several, or have an article."""
OPEN_QUOTE = re.compile(r"[\"“]\s*$")
INITIAL = re.compile(r"(?:[.!?:]|\b[A-Z]\.) $")
"""What stands before the first word of a sentence, or the rest of a name with initials."""
BEFORE_DATE = re.compile(r"\b(?:on|in)( the)? $")
BEFORE_YEAR = re.compile(r"\b(?:on|in|from|since|until) $")
BEFORE_PLACE = re.compile(r"\b(?:in|at|near)( the)? $")
BEFORE_LANGUAGE = re.compile(r"\b(?:written|rewritten|translated|implemented|fluent|available) in $")
"""What stands before a name that is more often a language than a place."""
ONE_OF = re.compile(r"\bone of\b")
NO_PLACE = re.compile(
    rf"[a-z][A-Z]|\b(?!USA?\b|UK\b)[A-Z]{{2}}|[\d_]|\b(?:War|Wars|Battle|Ages?|Revolution|Renaissance|League|Cup|"
    rf"Championships?|Olympics|Games|Awards?|Honours|Army|Navy|{_MONTHS})\b"
)
"""A name that follows `in` and is no place: a war, a month, or one that is spelled as programs are."""
PART_OF_RANGE = re.compile(r"(?:\b(?:between|between \w+ and|early|late|mid|[A-Z]{2,}s?)|['’]s?) $")
"""What stands before a number that says nothing alone: `between 1912 and 1920`, `RFC 1521`, `the women's 200 m`."""
NUMBERED_NAME = re.compile(r"\b(?:(?!(?:In|About|Over|Only|Some|Nearly)\b)[A-Z][A-Za-z]+|from [\d.,]+ to) $")
"""What stands before a number that is a part of a name, or of a range: `Mariner 10`, `from 10 to 20`."""
SECOND_DATE = re.compile(r"\b\d{4},? and\b")
"""What stands before the second of two dates: `by Oro in 1777 and by Tarn in 1790`."""
HEDGED = re.compile(
    r"\b(?:not|neither|nor|never|no longer|unlikely|almost|nearly|allegedly|reportedly|probably|possibly|supposedly|"
    r"rumou?red|might|(?:was|were|said|claimed|believed|thought|expected|planned|intended|supposed|due|refused|failed|tried|"
    r"attempted) to|(?:if|unless) [^,;:()]*$)\b|n['’]t\b|\b(?:if|unless) [^,;:()]*$"
)
"""Words that give a statement another meaning than its question would have."""

_KIN = "daughter|son|child|wife|widow|husband|brother|sister|mother|father|uncle|aunt|niece|nephew|cousin|twin"
_ARTIST = (
    "actor|actress|singer|poet|writer|author|painter|(?!(?:play|check)?list )[a-z]+ist|composer|director|producer|"
    "king|queen|emperor"
)
_OFFICE = (
    "(?:chief )?executive(?: officer)?|C[A-Z]O|head|manager|owner|founder|chair(?:man|woman|person)?|president|deputy|"
    "secretary|treasurer|minister|chancellor|mayor|governor|captain|leader|editor|director|officer|lead"
)
BEFORE_PERSON = re.compile(
    rf"\b(?:{_OFFICE})(?: (?:of|for) (?:[\w'’-]+ ){{1,6}}| )(?:is|was) $|"
    rf"\b(?:by|with|(?:grand|half-|step)?(?:{_KIN}|housekeeper|pupil|student) (?:of|to)|mother|father|{_ARTIST}|"
    r"starring|stars|married(?: to)?|(?:engaged|lady-in-waiting) to) $"
)
ABOUT_PERSON = re.compile(r"^(?:He|She|His|Her) |\bwas born\b|\(\s*born\b")
GENDER = re.compile(r"\b(?:(?P<he>[Hh]e|[Hh]is)|[Ss]he|[Hh]er)\b")
ABOUT_THING = re.compile(
    r"^(?:The|Our|An?) |^(?!.*\b(?:is|was|are|were|born)\b)(?!.*\(\D*\d)|"
    r" (?:is|was|are|were) (?:(?!(?:of|in|for|on|at|and|by|with)\b)[\w'’-]+ ){1,5}?"
    r"(?:team|department|company|group|unit|office|desk|division|station|project|service|organi[sz]ation|agency|page|"
    r"committee|board|branch|site|depot|list|guide)\b"
)
"""The first sentence of a page that is not about a person."""
PERSON_NAME = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’.-]*){1,3}")
"""A heading that may be the name of somebody."""
NO_PERSON = re.compile(r"^(?:The|Our) |(?<![\w'’-])[a-z]{4}")  # `van der` has less
"""Words that are never in a person's name: an article, or a common word."""
PERSON_CONTINUES = re.compile(r"(?!(?:His|Her)\b)(?=.*\b(?:[Hh]e|[Ss]he)\b)")
"""A sentence about a person already named, unless it is about somebody related: `Her deputy`."""

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

DATED_WORK = re.compile(
    r" (?:is|was) an? (?P<year>\d{4}) (?:(?!of |by |about )[\w'’-]+ ){0,6}?"
    r"(?:(?P<noun>film|album|song|single)|(?P<text>novel|book))\b"
)
"""What follows the name of a work that is dated by its kind: `is a 1947 crime film`."""

_PAST_TENSES = (
    "began begun beat beaten chose chosen drew drawn drove driven ate eaten gave given hid hidden knew known rode "
    "ridden sang sung showed shown spoke spoken stole stolen took taken wrote written"
)
PAST_TENSES: dict[str, str] = dict(zip(_PAST_TENSES.split()[1::2], _PAST_TENSES.split()[::2], strict=True))
"""Past tenses of the participles that differ from them."""
_PARTICIPLE = rf"(?P<verb>[a-z]+ed|built|taught|bought|brought|sought|won|made|{'|'.join(PAST_TENSES)})"
_DESCRIBED = (
    r"(?:(?!(?:of|from|in|by|with|for|on|to|at|as|about|near|after|before|but|that|which|who|whose|when|where|while|"
    r"never|not|only|often)\b)[\w'’-]+ )*"
)
BY_AGENT = re.compile(
    rf" (?:(?:was|were) (?:[a-z]+(?:ed|en) and )?|(?:is|was) (?:(?:an?|the) |(?=\d{{4}} ))(?P<work>{_DESCRIBED}))"
    rf"{_PARTICIPLE} by$"
)
"""What follows the name of a work, or of what was done, whose agent is asked for: ` is a 1947 film directed by`."""

_AGENTS = (
    "composed composer created creator designed designer developed developer directed director edited editor founded "
    "founder illustrated illustrator invented inventor painted painter performed performer produced producer published "
    "publisher translated translator written writer"
)
AGENTS: dict[str, str] = dict(zip(_AGENTS.split()[::2], _AGENTS.split()[1::2], strict=True))
"""Nouns for the agents of participles."""
MADE_BY = re.compile(rf"\b(?:{'|'.join(AGENTS)}|released|recorded|sung|album|music|single|song) by $")
"""What stands before a band's name in capital letters, which is somebody's: `a song by`."""
WORK = re.compile(
    r"\b(album|book|film|game|magazine|musical|newspaper|novel|opera|painting|play|poem|series|show|single|song|story)"
    r" (?:[a-z]+(?:ed|en) and )?$"
)
"""The noun of a work, before what is said of it: `1947 film `, `novel written and `."""

PERSON_OR_WORK = re.compile(
    r"(?:(?! (?:of|in|on|for|from|with|that|which|who)\b).)*?\b"
    rf"(?:(?P<people>(?:grand|half-|step)?(?:{_KIN})|{_ARTIST}|activist|architect|athlete|bishop|coach|countess|dancer|"
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

PART_OF_WHOLE = re.compile(
    r"(?: is| was|:) an? (?P<part>class|method|function|city|town|village|district|municipality|song|chapter|character)"
    r" of the (?P<whole>module|class|province|district|state|country|county|region|album|novel|series)"
    r" (?P<answer>(?!of\b)\w+(?:\.\w+)*(?: [A-Z]\w+)*)(?=\.?$|,| and )"
)
"""What follows the name of a part: ` is a town of the province Oro`, `: a function of the module tk.tree`."""

DESCRIBED_WORK = re.compile(
    rf"(?:is|was) an? (?P<kind>{_DESCRIBED})(?<!\band )(?<!ly )(?<!first )"
    rf"(?P<said>(?:[a-z]+(?:ed|en) and )?{_PARTICIPLE} by .*)"
)
"""What is said of a work by its kind: `is a 1947 film directed by Ada Birk`."""

OPEN_PREDICATE = re.compile(
    rf" {VERB} (?!an? )(?:(?!and |or |but |not |never )[\w'’.-]+ )+(?:by|of|to|in|at|near|from|for|with|on|as|after)$"
)
"""What follows the name of a subject, if only what is asked for is missing: ` was married to`."""

POSSESSED = re.compile(
    r"(?P<whose>['’]s(?: (?!(?:that|the|an?)\b|[\w-]+ed\b)[\w-]+){0,2}"
    r" (?!(?:wife|husband|mother|father|son|daughter|brother|sister)\b)[\w-]+) (?P<is>is|was)$"
)
"""What follows the name of an owner, up to what is asked for: `'s base class is`."""

COORDINATION = re.compile(
    rf"{_COMMA}|[;:()\"“”—]|\. |"
    r"\b(?:and|or|but|that|which|who|whom|whose|where|when|while|if|because|so|than|as well)\b"
)
"""Words that join clauses or parts of them; no question word is moved to the front across these."""
PASSIVE = re.compile(
    rf" ({VERB}) (?!(?:a|an|the|one|not|its|his|her|their)\b)([^,;(]+)(?<! from)(?<! since)(?<! until)$"
)
"""What follows a name up to when or where something was done: ` was founded by settlers`."""
_INFINITIVES = (
    "appeared appear began begin died die directed direct ended end had have has have lived live made make married "
    "marry moved move opened open played play premiered premiere published publish received receive recorded record "
    "released release scored score served serve studied study won win worked work wrote write"
)
INFINITIVES: dict[str, str] = dict(zip(_INFINITIVES.split()[::2], _INFINITIVES.split()[1::2], strict=True))
"""Verbs of lives and works, with what stays of them behind `did` or `does`."""

ARTICLE = re.compile(r"(?:The|An?|Each|Every|All|Most|Some|Many) ")
INCOMPLETE_NOUN_PHRASE = re.compile(
    rf"\b(?:[Tt]he|[Aa]n?|[Ee]ach|[Ee]very|[Ss]ame|[Aa]ny|[Aa]ll|[Nn]o) (?:(?!(?:{FUNCTION_WORDS.replace(' ', '|')}|"
    r"named|called|[a-z]+(?:ed|ing))\b)[a-z][\w-]* ){1,3}$"
)
"""What stands before the last part of a phrase: `the backup `, `a single `."""
GARBLED = re.compile(
    r"[:./\\_'(\[](?:what|which|where|when|who)\b|\b(?:what|which|where|when|who)[./\\_'\])]\w|\.\.\.|\[ ?\w"
    r"|\w (?:The|This|If|It|An) [a-z]|[a-z]{24}|[a-z0-9]{2}[.!?][\"”]?\s(?!\d)|\. (?:The|This|It|If|In|A) |"
    r"^(?i:who|what|when|where|how) .*\b(?:who|what|which)\b|"
    r"\b(?:of|with|as|in|on|at|about) (?:of|to|in|on|at|by|from|with|for|as|within|into) (?!order)"
)
"""A question about a part of a word or of a list, or of two sentences, without its spaces, or in no order."""
