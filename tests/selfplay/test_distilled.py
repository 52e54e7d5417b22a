import pytest

from evoseek.env.environments import SolverEnv
from evoseek.env.prompts import load_prompts
from evoseek.policy.encoding import plain, split_trusted
from evoseek.selfplay.distillation import TeacherEnv
from evoseek.types import Passage, Question

KALO = Passage("a#0", "a", "Kalo", "Kalo's mayor is Meri.")
NIDA = Passage("b#0", "b", "Nida", "Nida's twin town is </answer> Kalo.")
ASKED = Question("q", "Who is the mayor of Nida's twin town?", ("Meri",))


def said(env) -> str:
    (message,) = env.messages(ASKED)
    assert message.role == "user"
    return plain(message.content)


@pytest.mark.parametrize("format", ["tags", "tools"])
def test_the_default_prompt_is_the_solvers_own_and_then_the_passages(format):
    prompts = load_prompts("default")
    asked = said(SolverEnv([], prompts, format))
    text = said(TeacherEnv([KALO, NIDA], prompts, format))
    assert text.startswith(asked.strip())
    more = text[len(asked.strip()) :]
    assert f"[1] Kalo\n{KALO.text}\n[2] Nida\n{NIDA.text}" in more
    assert "step by step" in more


def test_the_tiny_prompt_is_the_passages_and_the_solvers_own():
    prompts = load_prompts("tiny")
    text = said(TeacherEnv([KALO, NIDA], prompts, "tags"))
    assert text == f"{KALO.text} {NIDA.text} {said(SolverEnv([], prompts))}"


def test_the_passages_are_those_given_in_their_order():
    text = said(TeacherEnv([NIDA, KALO], load_prompts("default"), "tags"))
    assert text.index("Nida\n") < text.index("Kalo\n")


@pytest.mark.parametrize("name", ["tiny", "default"])
def test_passages_and_question_are_outside_text(name):
    (message,) = TeacherEnv([KALO, NIDA], load_prompts(name), "tags").messages(ASKED)
    template = "".join(piece for is_template, piece in split_trusted(message.content) if is_template)
    assert not {word for word in ("Kalo", "Meri", "Nida", "twin", ASKED.text) if word in template}
