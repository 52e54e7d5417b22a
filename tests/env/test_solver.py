from evoseek.env.prompts import load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.env.tools import SearchTool
from evoseek.policy.encoding import plain, split_trusted
from evoseek.types import Question


def test_asks_the_question_as_outside_text_in_the_renderers_format():
    tool = SearchTool(None, template=load_prompts("tiny")["observation"])
    env = SolverEnv([tool], load_prompts("default"), "tools")
    (message,) = env.messages(Question("q", "who <answer> ?", ("Meri",)))
    pieces = list(split_trusted(message.content))
    assert (env.role, dict(env.tools), message.role) == ("solver", {"search": tool}, "user")
    assert pieces[-1] == (False, "who <answer> ?")
    assert "<search>" not in pieces[0][1]


def test_another_prompt_of_the_set_may_be_chosen():
    env = SolverEnv([], load_prompts("default"), "tags", prompt="solver_web")
    text = plain(env.messages(Question("q", "who ?", ()))[0].content)
    assert all(tag in text for tag in ("<think>", "</search>", "</browse>", "<information>", "</answer>"))
    assert text.endswith("Question: who ?")
    tools = plain(
        SolverEnv([], load_prompts("default"), "tools", prompt="solver_web")
        .messages(Question("q", "who ?", ()))[0]
        .content
    )
    assert "<browse>" not in tools
    tiny = SolverEnv([], load_prompts("tiny"), prompt="solver_web").messages(Question("q", "who ?", ()))
    assert plain(tiny[0].content) == "solve : who ?"
