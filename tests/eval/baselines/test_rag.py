"""One search for the question, one prompt with what was found."""

from evoseek.types import ToolCall


def test_the_question_is_searched_once_and_its_passages_are_shown(attempt, engine):
    trajectory, asked = attempt("rag", ["<answer> Meri </answer>"])
    question = "who leads the capital of Nida ?"
    assert engine.asked == [(question, 2)]
    assert asked == [("q/0/turn-0", [f"rag: {question} Nida: Its capital is Kalo.; "])]
    assert [result.call for result in trajectory.tool_results] == [ToolCall("search", {"query": question})]
    assert [passage.id for passage in trajectory.tool_results[0].passages] == ["Nida#0"]


def test_no_call_is_made_that_the_limits_do_not_allow(attempt, engine):
    _, asked = attempt("rag", ["<answer> Meri </answer>"], max_tool_calls=0)
    assert (engine.asked, asked[0][1]) == ([], ["rag: who leads the capital of Nida ? nothing"])
