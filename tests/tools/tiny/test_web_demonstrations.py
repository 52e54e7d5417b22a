"""Demonstrations of browsing: what a rollout with the tools would be, right unless flaws are asked for."""

import asyncio
import random
import re
from pathlib import Path

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.build import FLAWLESS, sample
from tools.tiny.demonstrations import Demonstration
from tools.tiny.more_tags import add_tags
from tools.tiny.site_web import SiteWeb
from tools.tiny.skills import WEB_LIMITS, measure_browsing
from tools.tiny.web_demonstrations import WebDemonstrator, WebMixture, web_tools

from evoseek.models.load import load_policy
from evoseek.renderers.tags import TagRenderer, tag_calls
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.run import run_trajectory
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Question
from evoseek.world.site import Site
from evoseek.world.world import World


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(World.generate(11, 300, "pretrain"), 11)


@pytest.fixture(scope="module")
def index(site: Site, tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    return LexicalIndex.build(tmp_path_factory.mktemp("index") / "index", site.passages())


def draw(site: Site, index: LexicalIndex, mixture: WebMixture, count: int, seed: int = 0) -> list[Demonstration]:
    writer = WebDemonstrator(site, index, mixture, random.Random(seed))
    return [writer.draw() for _ in range(count)]


def question(shown: Demonstration) -> str:
    return shown[0].text.removeprefix("solve : ")


def tagged(shown: Demonstration, tag: str) -> list[str]:
    text = " ".join(piece.text for piece in shown if piece.kind == "action")
    return re.findall(f"<{tag}> (.*?) </{tag}>", text)


def port(shown: Demonstration) -> str:
    found = re.search(r"127\.0\.0\.1:(\d+)/", shown[2].text)
    assert found is not None
    return found[1]


def test_without_flaws_the_answer_is_right_after_one_search_a_hop(site: Site, index: LexicalIndex) -> None:
    for shown in draw(site, index, FLAWLESS, 40):
        verdict = site.world.oracle(question(shown))
        assert tagged(shown, "answer") == [verdict.answer]
        assert len(tagged(shown, "search")) == verdict.hops
        facts = [f"{fact.subject}'s {fact.relation} is {fact.object}." for fact in verdict.chain]
        assert tagged(shown, "think") == facts


def test_a_page_is_opened_where_the_snippets_do_not_tell_and_it_does(site: Site, index: LexicalIndex) -> None:
    opened: list[bool] = []
    for shown in draw(site, index, FLAWLESS, 40):
        facts, told, before = iter(site.world.oracle(question(shown)).chain), "", ""
        for action, seen, after in zip(shown[1::2], shown[2::2], shown[3::2], strict=False):
            if "<search>" in action.text:
                fact = next(facts)
                told = f"{fact.subject}'s {fact.relation} is {fact.object}."
                opened.append("<browse>" in after.text)
                assert opened[-1] == (told not in seen.text)
            if found := re.search("<browse> (.*) </browse>", action.text):
                assert told in seen.text
                assert f" {found[1]} " in before
            before = seen.text
    assert 0 < opened.count(False) < opened.count(True)


def test_pages_that_do_not_tell_are_not_opened(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.tiny.web_demonstrations.PAGE_WORDS", 5)  # too few for any fact
    talkative = Site(site.world, 11, told=0.6)
    index = LexicalIndex.build(tmp_path / "index", talkative.passages())
    for shown in draw(talkative, index, FLAWLESS, 10):
        assert not tagged(shown, "browse")
        assert tagged(shown, "answer") == [site.world.oracle(question(shown)).answer]


@pytest.mark.parametrize("mixture", [FLAWLESS, WebMixture()])
def test_they_are_to_the_token_what_a_rollout_of_the_same_actions_is(
    site: Site, index: LexicalIndex, mixture: WebMixture
) -> None:
    policy = load_policy("tiny")
    add_tags(policy, {"browse": "search"})
    for shown in draw(site, index, mixture, 6):
        actions = [piece.text for piece in shown if piece.kind == "action"]
        tools = web_tools(SiteWeb(site, index, f"http://127.0.0.1:{port(shown)}"))
        renderer = TagRenderer(policy.tokenizer, tag_calls([tool.schema for tool in tools]))
        trajectory = asyncio.run(
            run_trajectory(
                Question("q", question(shown), ()),
                env=SolverEnv(tools, load_prompts("tiny"), prompt="solver_web"),
                renderer=renderer,
                sampler=ScriptedSampler({"t": actions}, policy.tokenizer),
                limits=WEB_LIMITS,
                trajectory_id="t",
                temperature=1.0,
                seed=0,
            )
        )
        made = sample(shown, TagRenderer(policy.tokenizer), policy)
        assert (trajectory.token_ids, trajectory.loss_mask) == (made.token_ids, made.loss_mask)
        assert trajectory.answer == actions[-1].split("<answer> ")[1].removesuffix(" </answer>").lower()


def test_flaws_are_those_that_are_asked_for(site: Site, index: LexicalIndex) -> None:
    for shown in draw(site, index, WebMixture(no_browse=1.0, early_stop=0.0), 30):
        assert not tagged(shown, "browse")
        answer = site.world.oracle(question(shown)).answer
        *_, last, _ = shown
        assert tagged(shown, "answer") == [answer] or last.text.startswith(tagged(shown, "answer")[0])
    for shown in draw(site, index, WebMixture(no_browse=0.0, early_stop=1.0), 30):
        assert tagged(shown, "answer") == [site.world.oracle(question(shown)).chain[0].object]
        assert len(tagged(shown, "search")) == 1


def test_most_give_up_by_default_but_some_do_not(site: Site, index: LexicalIndex) -> None:
    shown = draw(site, index, WebMixture(), 100)
    right = sum(tagged(one, "answer") == [site.world.oracle(question(one)).answer] for one in shown)
    browsing = sum(bool(tagged(one, "browse")) for one in shown)
    assert 6 < right < 35  # of one hop 0.15 + 0.85 * 0.3 = 0.41, of two 0.4 * 0.41^2 = 0.07, of three 0.03: a sixth
    assert 12 < browsing < 45  # 0.85 * 0.3 at the first hop, and a few at later ones


def test_ports_differ_and_all_fits_into_a_rollout(site: Site, index: LexicalIndex) -> None:
    policy = load_policy("tiny")
    add_tags(policy, {"browse": "search"})
    shown = draw(site, index, FLAWLESS, 30)
    assert len(set(map(port, shown))) > 25
    assert max(len(sample(one, TagRenderer(policy.tokenizer), policy).token_ids) for one in shown) < 1200


def test_the_same_seed_writes_the_same(site: Site, index: LexicalIndex) -> None:
    first, again, other = (draw(site, index, WebMixture(), 5, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_policy_that_knows_no_browsing_is_measured_to_do_none() -> None:
    right, pages = measure_browsing(load_policy("tiny"), seed=3, tries=6, temperatures=(0.0,))
    assert (right.name, pages.name) == ("browse", "browse, pages")
    assert right.tries == pages.tries == {1: 2, 2: 2, 3: 2}
    assert pages.share() == 0
