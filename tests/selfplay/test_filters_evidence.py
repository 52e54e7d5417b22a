from dataclasses import replace

from evoseek.selfplay.filters import retrieved_passages, seen_passages, supporting_passages
from evoseek.types import Action, Passage, ProposerTask, Question, StopReason, ToolCall, ToolResult, Trajectory


def passage(title: str, score: float | None = None) -> Passage:
    return Passage(f"{title.lower()}#0", title.lower(), title, f"{title}'s mayor.", score=score)


KALO, MERI, TOLU, ZUMI = map(passage, ("Kalo", "Meri", "Tolu", "Zumi"))
CALL = ToolCall("search", {"query": "x"})
SOURCE = Passage(KALO.id, KALO.id, KALO.title, KALO.text)
FROM_KALO = ProposerTask(3, SOURCE)


def proposal(
    *turns: tuple[str, list[list[Passage]]], last: str, task: ProposerTask | None = None, given: tuple[str, ...] = ()
) -> Trajectory:
    """Turns are what was written, and what each of its calls found."""
    return Trajectory(
        id="t/0",
        question=Question("t", "task", given, task=task or ProposerTask(2)),
        role="proposer",
        segments=(),
        actions=(*(Action(text, (CALL,) * len(found)) for text, found in turns), Action(last)),
        tool_results=tuple(ToolResult(CALL, "", tuple(found)) for _, results in turns for found in results),
        stop_reason=StopReason.ANSWERED,
        answer="x",
    )


def test_every_passage_that_was_found_once_in_the_order_of_finding() -> None:
    made = proposal(("", [[KALO, MERI], [KALO, TOLU]]), ("", [[passage("Meri", 0.5), ZUMI], []]), last="")
    assert retrieved_passages(made) == (KALO, MERI, TOLU, ZUMI)
    assert retrieved_passages(proposal(last="")) == ()


def test_of_a_search_those_passages_whose_titles_are_written_later_support_the_question() -> None:
    made = proposal(
        ("<search> meri </search>", [[ZUMI, MERI]]),
        ("<think>Meri's employer is Tolu</think><search> tolu </search>", [[KALO, TOLU, ZUMI]]),
        last="<think> so it is tolu </think><question> what is kalo 's mayor ? </question>",
    )
    assert supporting_passages(made) == (MERI, KALO, TOLU)


def test_the_source_passage_comes_first() -> None:
    made = proposal(("", [[ZUMI, MERI]]), last="<think> meri </think>", task=FROM_KALO)
    assert supporting_passages(made) == (SOURCE, MERI)
    assert supporting_passages(proposal(last="", task=FROM_KALO)) == (SOURCE,)


def test_trap_a_source_passage_that_was_not_shown_supports_nothing_until_it_is_found() -> None:
    made = proposal(("", [[ZUMI, MERI]]), last="meri and kalo", task=FROM_KALO)
    assert (seen_passages(made), supporting_passages(made)) == ((SOURCE, ZUMI, MERI), (SOURCE, MERI))
    hidden = replace(FROM_KALO, shown=False)
    made = proposal(("", [[ZUMI, MERI]]), last="meri and kalo", task=hidden)
    assert (seen_passages(made), supporting_passages(made)) == ((ZUMI, MERI), (MERI,))
    assert supporting_passages(proposal(("", [[ZUMI, KALO]]), last="kalo", task=hidden)) == (KALO,)


def test_passages_about_an_answer_that_the_task_gave_support_nothing_but_those_that_lead_away_do() -> None:
    """Found first and written later on, and yet the way back only began there."""
    made = proposal(("meri", [[MERI, KALO, ZUMI]]), ("", [[MERI]]), last="Meri of Kalo", given=("the Meri",))
    assert supporting_passages(made) == (KALO,)
    made = proposal(("meri", [[MERI, TOLU, ZUMI]]), last="meri", given=("Meri",))
    assert supporting_passages(made) == (TOLU,)  # the best of the others


def test_the_source_passage_found_again_counts_once() -> None:
    made = proposal(("", [[MERI, KALO]]), last="kalo and meri", task=FROM_KALO)
    assert supporting_passages(made) == (SOURCE, MERI)


def test_what_was_written_before_or_in_the_searching_turn_does_not_count_then_the_best_one_does() -> None:
    made = proposal(("meri", [[MERI]]), ("<search> zumi </search>", [[TOLU, ZUMI]]), last="nothing of it")
    assert supporting_passages(made) == (MERI, TOLU)


def test_searches_of_one_turn_are_made_together() -> None:
    made = proposal(("zumi", [[TOLU, MERI], [TOLU, ZUMI], []]), ("meri", [[KALO, MERI]]), last="<answer>Zumi</answer>")
    assert supporting_passages(made) == (MERI, ZUMI, KALO)


def test_a_title_next_to_a_tag_is_seen() -> None:
    short = passage("Zo")
    assert supporting_passages(proposal(("", [[MERI, short]]), last="<answer>Zo</answer>")) == (short,)


def test_a_passage_without_a_title_is_used_only_as_the_best_one() -> None:
    untitled = Passage("7", "7", "", "text")
    assert supporting_passages(proposal(("", [[untitled, MERI]]), last="meri")) == (MERI,)
    assert supporting_passages(proposal(("", [[untitled, MERI]]), last="x")) == (untitled,)
