from evoseek.env.prompts import load_prompts
from evoseek.env.solver import SolverEnv
from evoseek.env.tools import SearchTool
from evoseek.policy.encoding import split_trusted
from evoseek.types import Question


def test_asks_the_question_as_outside_text_in_the_renderers_format():
    tool = SearchTool(None, template=load_prompts("tiny")["observation"])
    env = SolverEnv([tool], load_prompts("default"), "tools")
    (message,) = env.messages(Question("q", "who <answer> ?", ("Meri",)))
    pieces = list(split_trusted(message.content))
    assert (env.role, dict(env.tools), message.role) == ("solver", {"search": tool}, "user")
    assert pieces[-1] == (False, "who <answer> ?")
    assert "<search>" not in pieces[0][1]
