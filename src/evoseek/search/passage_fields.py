"""The fields of a passage in tantivy, and the conversion to and from them."""

from __future__ import annotations

from typing import Any

import tantivy

from evoseek.errors import DataError
from evoseek.search.analyser import Analyser
from evoseek.types import Passage


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("id", "document_id"):
        builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
    for name in ("title", "text"):
        builder.add_bytes_field(name, stored=True)
    for name in ("start", "end"):
        builder.add_unsigned_field(name, stored=True)
    builder.add_unsigned_field("order", fast=True)  # place among all passages ever added
    # The terms come from our own analyser: tantivy only splits them at white space and counts them (no positions).
    for name in ("title_terms", "text_terms"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    # Behind the others, whose numbers stay those of an index that was built before there were citations.
    for name in ("file", "heading"):
        builder.add_bytes_field(name, stored=True)
    builder.add_unsigned_field("page", stored=True)
    return builder.build()


SCHEMA = _schema()


def to_stored(passage: Passage, order: int, analyser: Analyser) -> tantivy.Document:
    """The passage as tantivy takes it; an index of before there were citations drops them. DataError if it holds what
    cannot be encoded or offsets below zero."""
    document = tantivy.Document()
    try:
        document.add_text("id", passage.id)
        document.add_text("document_id", passage.document_id)
        document.add_bytes("title", passage.title.encode())
        document.add_bytes("text", passage.text.encode())
        document.add_unsigned("start", passage.start)
        document.add_unsigned("end", passage.end)
        for name, value in (("file", passage.file), ("heading", passage.heading)):
            if value is not None:
                document.add_bytes(name, value.encode())
        if passage.page is not None:
            document.add_unsigned("page", passage.page)
    except (UnicodeEncodeError, OverflowError) as error:
        raise DataError(
            f"The passage {passage.id!r} cannot be indexed: {error}. Texts must be proper Unicode (no lone surrogates) "
            "and offsets at least 0."
        ) from error
    document.add_unsigned("order", order)
    document.add_text("title_terms", " ".join(analyser.tokens(passage.title)))
    document.add_text("text_terms", " ".join(analyser.tokens(passage.text)))
    return document


def from_stored(document: tantivy.Document, score: float | None = None) -> Passage:
    """The passage as it was given, with the score that it was found with."""
    fields: dict[str, list[Any]] = document.to_dict()
    return Passage(
        id=fields["id"][0],
        document_id=fields["document_id"][0],
        title=fields["title"][0].decode(),
        text=fields["text"][0].decode(),
        start=fields["start"][0],
        end=fields["end"][0],
        score=score,
        file=_text(fields, "file"),
        page=fields["page"][0] if "page" in fields else None,
        heading=_text(fields, "heading"),
    )


def _text(fields: dict[str, list[Any]], name: str) -> str | None:
    return fields[name][0].decode() if name in fields else None


def exact_query(field: str, value: str) -> tantivy.Query:
    """Passages whose `id` or `document_id` is just this."""
    try:
        return tantivy.Query.term_query(SCHEMA, field, value, "basic")
    except ValueError:  # not encodable, so no passage has it
        return tantivy.Query.empty_query()


def terms_query(terms: list[str], title_boost: float) -> tantivy.Query:
    """BM25 of the text plus `title_boost` times BM25 of the title, over passages with any of the terms."""
    clauses: list[tuple[tantivy.Occur, tantivy.Query]] = []
    for term in terms:
        clauses.append((tantivy.Occur.Should, tantivy.Query.term_query(SCHEMA, "text_terms", term, "freq")))
        if title_boost > 0:
            in_title = tantivy.Query.term_query(SCHEMA, "title_terms", term, "freq")
            clauses.append((tantivy.Occur.Should, tantivy.Query.boost_query(in_title, title_boost)))
    return tantivy.Query.boolean_query(clauses)


def order_query(first: int, end: int) -> tantivy.Query:
    """Passages whose place is in [first, end)."""
    return tantivy.Query.range_query(
        SCHEMA, "order", tantivy.FieldType.Unsigned, first, end, include_lower=True, include_upper=False
    )
