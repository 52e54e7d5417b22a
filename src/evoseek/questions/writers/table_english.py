"""What a cold start knows of the English of tables: which columns can be asked for, and by which words."""

from __future__ import annotations

import re

from evoseek.questions.writers.english import OFFICE

ATTRIBUTES = re.compile("|features?|propert(?:y|ies)|attributes?|characteristics?|criteri(?:on|a)|specifications?")
"""Headings above the attributes of what other columns are about."""
VALUES = re.compile("|values?|details?|data")
"""The other heading of a table of attributes, of what its page is about."""
OVERVIEW = re.compile(
    r"\b(?:data|details|glance|facts|figures|overview|summary|specifications?|profile|general)\b", re.IGNORECASE
)
"""The heading of a section that is about what the page is about."""
GENERIC = re.compile(
    f"{ATTRIBUTES.pattern}|{VALUES.pattern}|items?|names?|who|what|which|titles?|things?|entry|term|word|numbers?|"
    "amounts?|figures?"
)
"""Headings that say nothing about what is below them."""
NO_ROWS = re.compile(
    r"#|no\.?|nr\.?|id|step|date|day|week|month|quarter|year|when|time|version|rank|position|row|page|line|from|start|"
    r"action|task|question|problem|symptom|error|change|note|decision|example|event|milestone"
)
"""Headings of first columns whose cells name nothing."""
NO_COLUMN = re.compile(
    r"\b(?:descriptions?|meanings?|notes?|comments?|remarks?|definitions?|explanations?|examples?|purpose|usage|"
    r"reasons?|answers?|questions?|yes|no|none|all|both|each|any|done|if|when|where|why|how|who|what|which|since|until|"
    r"the|an?|it|its|them|their|his|her|our|your|this|that|for|to|from|by|in|is|are|can|may|must|be|does|has|went|"
    r"uses?|used|required|allowed|supported|optional|mandatory|available|before|after|old|new|other|true|false|"
    r"results?|changes?|tests?|with|short|long|left|ends|withdrawn|twice|once|every|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b|[^a-z '-]|^(?!id$)..?$|ed$|^per\b|of$|ly$",
    re.IGNORECASE,
)
"""Headings that are no attribute of what a row is about, or whose cells are sentences."""
NO_ANSWER = re.compile(
    r"\W*|n/?a|\W*none\W*|yes|no|x|tbd|tba|unknown|vacant|various|(?:see|same) .*|ditto|as above|"
    r".*(?:[][`*;?!=<>]|\. ).*|\.\d.*",
    re.IGNORECASE,
)
"""Cells that say nothing by themselves, are sentences or several things, or a statistic."""
WAS_DONE = re.compile(
    r"(?:last )?(?:opened|built|founded|born|installed|established|released|published|launched|introduced|closed|"
    r"demolished|appointed|elected|replaced|renewed|inspected|updated|reviewed|revised|signed|approved|commissioned|"
    r"completed|created|tested)"
)
"""Headings above the dates at which something was done to what a row is about."""
HAPPENED = {
    "joined": ("did", "join"),
    "start": ("did", "start"),
    "started": ("did", "start"),
    "end": ("does", "end"),
    "left": ("did", "leave"),
    "retired": ("did", "retire"),
    "died": ("did", "die"),
    "ended": ("did", "end"),
    "expires": ("does", "expire"),
    "expired": ("did", "expire"),
}
"""Headings above the dates of what a row did, with the verbs of the question."""
COMING = re.compile("next|due|expiry|deadline|end")
"""How a heading begins that is above dates to come."""
COUNTED = re.compile("(?:[a-z]+ )?(?:[a-z]{2,}[^suia]s|staff|people|children|inhabitants)(?: per [a-z]+)?")
"""Headings above numbers of things, or in the plural."""
MEASURED = re.compile(
    r".*\b(?:(?:milli)?seconds|minutes|hours|days|weeks|months|years|steps|points|percent|[a-z]*bytes|cores)"
)
"""Of these the headings that have nothing, but last or are measured."""
NAMED = re.compile(
    r"(?!(?:The|An?|All|Any|Each|No|Other|Total|Sum|Mean|Average)\b)(?=.*[A-Za-z]{2})[A-Z0-9][^][,;:=<>|()*`]*|\w*[a-z]\w*[_.-][\w.-]+"
)
"""Cells that name what a row is about, or an identifier."""
CODES = re.compile(
    r"(?:settings?|options?|parameters?|variables?|commands?|flags?|fields?|keys?|arguments?|functions?) -{0,2}[\w.-]+"
)
"""Identifiers of any form, below these headings."""
OFFICES = re.compile(f"(?:[a-z]+ )?(?:{OFFICE}|supervisor|contact|author|coach|representative|trainer|host)")
"""Headings above the names of people."""
OF_MONEY = re.compile(
    r"\b(?:prices?|costs?|fees?|deposits?|budget|limit|charges?|rates?|rent|salary|turnover|revenue|profit|savings?|fines?|allowance|"
    r"discount|loan|value|spending|investments?|tariff|sum)\b"
)
"""Headings of which one has to be above amounts of money: in a table of prices the others are of what has them."""
ENGLISH = re.compile(
    rf"(?i:{WAS_DONE.pattern}|{'|'.join(HAPPENED)}|{OFFICES.pattern}|address|street|town|country|phone|role|job|duty|price|cost|"
    r"weight|size|height|length|width|colou?r|category|owner|supplier|customer|quantity|stock|opening hours|valid|"
    r"capacity|department|room|building|language|duration|default|description|serial number|vehicles|staff)"
)
"""Headings of which one is in a spreadsheet in English, whose lines are too short to tell a language."""
ABBREVIATED = re.compile(
    r"^[ \t]*(?:[-*•|] ?)?(?:\*\*|__)?(?P<short>[A-Z][A-Z0-9]{1,6})(?:\*\*|__)?(?::(?:\*\*|__)?| [-–—|]) "
    r"(?P<long>[\w'’ -]{5,80}?)(?=[.,;:(|]|\s*$)",
    re.MULTILINE,
)
"""A line that says what an abbreviation means: `**DMA**: district metered area.`"""
SHORTENED = re.compile(r"(?P<long>(?:[\w'’-]+ ){2,7})\((?P<short>[A-Z][A-Z0-9]{1,6})\)")
"""An abbreviation after what it means: `district metered area (DMA)`."""
