"""The card of a tiny policy: its numbers are those of the skills, and the curve covers every step."""

from tools.tiny.build import TinyRecipe, WebRecipe
from tools.tiny.card import tiny_card
from tools.tiny.skills import Skill

SKILLS = [Skill("solve", 0.7, {1: 10, 2: 10}, {1: 9, 2: 1})]


def test_skills_are_shown_by_hops_with_n_and_interval() -> None:
    card = tiny_card(TinyRecipe(), [1.0], SKILLS, command="python -m tools.tiny here")
    assert "| solve | 0.7 | 20 | 0.500 [0.299, 0.701] | 0.90 | 0.10 |  |  |" in card  # Wilson interval of 10 of 20
    assert "python -m tools.tiny here" in card


def test_the_curve_has_the_mean_of_each_stretch() -> None:
    card = tiny_card(TinyRecipe(), [float(step) for step in range(1, 25)], [], command="")
    assert "| 2 | 1.5000 |" in card
    assert "| 24 | 23.5000 |" in card


def test_the_whole_recipe_is_named() -> None:
    card = tiny_card(TinyRecipe(seed=7, steps=11), [1.0], [], command="")
    assert "| seed | 7 |" in card
    assert "| steps | 11 |" in card
    assert "early_stop" in card


def test_that_of_the_one_that_browses_says_from_which_policy_it_comes() -> None:
    skills = [Skill("browse", 0.7, {1: 4}, {1: 1}), Skill("browse, pages", 0.7, {1: 4}, {1: 2})]
    card = tiny_card(WebRecipe(start="tiny-reader"), [1.0], skills, command="")
    assert "from the policy `tiny-reader`" in card
    assert "| start | tiny-reader |" in card
    assert "- **browse, pages**:" in card
    assert "| browse, pages | 0.7 | 4 | 0.500" in card
    assert "copying" not in card
    assert "from scratch" not in card
