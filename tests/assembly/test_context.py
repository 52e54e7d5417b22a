"""What a run's parts have in common."""

import pytest
from tests.raising import raises
from tests.search.spelling import LetterEncoder

from evoseek.assembly.context import Context, Objects
from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError
from evoseek.models.load import load_policy, save_policy
from evoseek.reward.functions import AnswerReward
from evoseek.reward.judge import Judge
from evoseek.search.dense import DenseIndex
from evoseek.search.lexical import LexicalIndex
from evoseek.training.plan import TrainingContext
from evoseek.types import Passage


def test_the_reward_is_a_metric_or_the_judge_or_the_callers_own():
    context = Context(load_settings())
    assert isinstance(context.reward, AnswerReward)
    assert context.metric == "exact_match"
    judged = {"reward.name": "judge", "judge.model": "qwen3-8b", "judge.base_url": "http://127.0.0.1:9"}
    assert isinstance(Context(load_settings(options=judged)).reward, Judge)
    with raises("model.not_given", match=r"judge\.model is empty\. Set judge"):
        Context(load_settings(options={"reward.name": "judge"})).reward  # noqa: B018
    assert Context(load_settings(), objects=Objects(reward=lambda trajectory: 1.0)).metric == "reward"


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({"judge.model": "qwen3-8b"}, True),
        ({"judge.model": "llama-3.1-8b"}, False),
        ({"judge.model": "qwen3-8b", "reward.name": "f1"}, False),
    ],
)
def test_a_relative_as_judge_is_warned_of(tmp_path, options, is_told):
    save_policy(load_policy("tiny"), tmp_path / "Qwen2.5-3B-Instruct")
    options = {"reward.name": "judge", "policy.model": str(tmp_path / "Qwen2.5-3B-Instruct")} | options
    told = []
    Context(load_settings(options=options), notify=told.append).report_models()
    assert any("same family" in words for words in told) == is_told


@pytest.mark.parametrize(
    ("system", "options", "named"),
    [
        ("search-r1", {"search.attempts": 1}, "search.attempts below 3"),
        ("search-r1", {"search.attempts": 2}, "search.attempts below 3"),
        ("search-r1", {"search.attempts": 3}, None),
        ("deepresearcher", {"search.attempts": 2}, "search.attempts below 3"),
        ("deepresearcher", {}, None),
    ],
)
def test_fewer_than_three_attempts_at_a_failing_call_are_warned_of(system, options, named):
    told = []
    Context(load_settings(system=system, options=options), notify=told.append).report_models()
    (words,) = [words for words in told if "biased towards few searches" in words] or [None]
    assert words is None if named is None else words.startswith(named)


def test_what_is_shared_is_made_once():
    context, made = Context(load_settings()), []
    assert [context.shared("one", lambda: made.append(1) or "made") for _ in range(2)] == ["made", "made"]
    assert made == [1]


def test_training_needs_a_directory():
    with pytest.raises(ConfigError, match=r"Training needs a directory for the run\."):
        TrainingContext(load_settings()).run  # noqa: B018


def test_only_what_is_trained_gets_a_new_adapter():
    settings = load_settings(options={"lora.rank": 2})
    with Context(settings) as asked, TrainingContext(settings) as trained:
        assert (asked.agent.policy.adapter, trained.agent.policy.adapter) == (None, "policy")
    assert asked.settings.lora.rank == 2


class EmptyEngine:
    """An engine whose length is 0."""

    def __len__(self):
        return 0

    async def search(self, queries, k):
        return [[] for _ in queries]


def test_an_engine_without_passages_is_no_missing_engine():
    engine = EmptyEngine()
    context = Context(load_settings(), objects=Objects(search=engine))
    assert context.engine is engine
    assert context.held_out_engine is engine


def test_an_index_is_searched_by_the_engine_that_it_was_built_for(tmp_path, monkeypatch):
    monkeypatch.setenv("EVOSEEK_TRUST", str(tmp_path))  # the encoder is no part of evoseek
    passages = [Passage(name, "", text, name) for name, text in (("a", "one two"), ("b", "three"))]
    LexicalIndex.build(tmp_path / "terms", passages)
    DenseIndex.build(tmp_path / "vectors", passages, LetterEncoder())
    indexes = {"search.index": str(tmp_path / "terms"), "evaluation.index": str(tmp_path / "vectors")}
    context = Context(load_settings(options=indexes))
    assert isinstance(context.engine, LexicalIndex)
    assert isinstance(context.held_out_engine, DenseIndex)
    named = Context(load_settings(options=indexes | {"search.name": "lexical"}))
    assert isinstance(named.held_out_engine, LexicalIndex)


def test_tools_of_the_web_without_its_settings_name_the_system_that_has_them():
    context = Context(load_settings(sets=["tools=[{name='web_search'}]"]))
    with pytest.raises(ConfigError, match=r"\[web\].*search-r1.*deepresearcher"), context:
        context.tools(context.agent.prompts, None)
