"""Settings that were changed and do nothing are refused, with what they need; those that nobody changed are not."""

import json

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.registry import KINDS
from evoseek.config.sections import Needs, Section, changed, check_effect
from evoseek.errors import ConfigError


def check(settings):
    check_effect(settings, changed(settings))


@pytest.mark.parametrize(
    ("system", "given", "words"),
    [
        ("ssp", ["reward.overlong_max=20"], "In self-play a reward also says what share"),
        ("dr-zero", ["reward.overlong_max=20"], r"overlong_max is set, but it has no effect here\. .* Leave reward\."),
        ("ssp", ["reward.unanswered_penalty=0.5"], "In self-play a reward also says what share"),
        ("deepresearcher", ["evaluation.index=i"], "searches the web"),
        ("search-r1", ["judge.model=x"], "reward.name to be judge"),
        (
            "search-r1",
            ["critic.warmup_steps=9"],
            "credit.name to be gae, and that is .group.. Leave critic.warmup_steps out",
        ),
        ("search-r1", ["algorithm.kl_in=reward"], "algorithm.kl_coefficient to be set, and that is 0.0"),
        ("search-r1", ["lora.alpha=64.0"], "lora.rank to be set, and that is 0"),
        ("search-r1", ["evaluation.every=5"], "evaluation.path to be set"),
        ("dr-zero", ["verification.noise_passages=1"], "verification.readings"),
        *(
            ("dr-zero", ["dr_zero.one_policy=true", setting], r"dr_zero\.one_policy to be left out, and that is True")
            for setting in ("proposer.frozen_after=0", "proposer.frozen_after=1")
        ),
        ("zerosearch", ["simulator.model=x", "simulator.api_key_env=A_KEY"], "simulator.base_url to be set"),
    ],
)
def test_what_does_nothing_is_refused(system, given, words):
    with pytest.raises(ConfigError, match=words):
        check(load_settings(system=system, sets=given))


@pytest.mark.parametrize(
    ("system", "given", "words"),
    [
        ("search-r1", "web.provider=searxng", r"setting web \(it is for deepresearcher\)"),
        ("dspo", "browse.page_words=3", r"setting browse \(it is for deepresearcher\)"),
        ("zerosearch", "reader.model=x", r"setting reader \(it is for deepresearcher\)"),
        ("deepresearcher", "simulator.model=x", r"setting simulator \(it is for zerosearch\)"),
        ("search-r1", "zerosearch.noise_end=0.5", r"setting zerosearch \(it is for zerosearch\)"),
        ("search-r1", "proposer.attempts=3", r"setting proposer \(it is for dr-zero or ssp\)"),
        ("zerosearch", "dspo.limit=2", r"setting dspo \(it is for dspo\)"),
        ("dr-zero", "ssp.fill=dummy", r"setting ssp \(it is for ssp\)"),
        ("ssp", "dr_zero.solver_steps=3", r"setting dr_zero \(it is for dr-zero\)"),
        ("ssp", "proposer.frozen_after=2", r"setting proposer\.frozen_after \(it is for dr-zero\)"),
        ("ssp", "rollout.group_size=4", r"setting rollout\.group_size \(it is for search-r1 or"),
        ("dr-zero", "questions.path=q.jsonl", r"setting questions\.path \(it is for search-r1 or"),
        ("search-r1", "credit={name='raw', scale='none'}", r"setting credit\.scale \(raw has name\)"),
        ("search-r1", "credit={name='raw', lam=0.9}", r"setting credit\.lam"),
        ("ssp", "proposer.credit.scale=none", r"setting proposer\.credit\.scale \(raw has name\)"),
    ],
)
def test_what_belongs_to_another_system_or_part_is_no_setting(system, given, words):
    with pytest.raises(ConfigError, match=words):
        load_settings(system=system, sets=[given])


@pytest.mark.parametrize(
    ("system", "given"),
    [
        ("search-r1", ["critic.warmup_steps=0", "lora.alpha=32.0", "evaluation.every=10"]),  # the defaults
        ("search-r1", ["credit.name=gae", "credit.lam=0.9", "critic.warmup_steps=9"]),
        ("search-r1", ["lora.rank=8", "lora.alpha=64.0"]),
        ("search-r1", ["evaluation.path=q", "evaluation.every=5"]),
        ("search-r1", ["algorithm.kl_coefficient=0.1", "algorithm.kl_in=reward"]),
        ("search-r1", ["answerer.model=x"]),  # for `evoseek ask --run-dir`
        ("search-r1", ["loss=reinforce", "tools=[]"]),
        ("dspo", ["loss.name=reinforce", "algorithm.mini_batches=1"]),  # clip_low is dspo's, and nobody set it
        ("zerosearch", ["search.index=i", "simulator.base_url=http://x", "simulator.api_key_env=A_KEY"]),
        ("zerosearch", ["simulator.model=tiny", "zerosearch.noise_end=0.5"]),
        ("deepresearcher", ["web.provider=json", 'web.api={results="r", options={gl="se"}}']),
        ("ssp", ["proposer.credit.name=group", "proposer.credit.scale=none"]),
        ("dr-zero", ["proposer.ratio=[]", "proposer.frozen_after=2"]),
        ("dr-zero", ["proposer.ratio=[]", "proposer.frozen_after=0"]),
    ],
)
def test_what_does_something_is_not(system, given):
    check(load_settings(system=system, sets=given))


@pytest.mark.parametrize("system", KINDS["system"].parts)
def test_the_saved_config_of_a_run_holds_every_setting_and_loads(tmp_path, system):
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(load_settings(system=system).resolved()))
    settings = load_settings(saved)
    assert changed(settings) == []
    check(settings)


def test_what_was_changed_is_known_by_its_dotted_name():
    settings = load_settings(sets=["loss=sequence", "loss.clip_low=0.5", "run.steps=3", "tools=[]", "run.seed=0"])
    assert changed(settings) == ["tools", "run.steps", "loss.name", "loss.clip_low", "loss.clip_high"]


def test_a_list_of_parts_is_one_setting():
    stages = [{"name": "one", "steps": 5}, {"name": "two"}]
    settings = load_settings(options={"stages": stages, "tools": ["evoseek.rollout.tools:SearchTool"]})
    assert changed(settings) == ["tools", "stages"]


class Detailed(Section):
    """A table whose details need its switch."""

    switch: bool = False
    detail: int = 1
    other_detail: int = 1

    @classmethod
    def effects(cls):
        """Both."""
        return (Needs("detail other*", "switch", (True,), "Something else does it."),)


class Outer(Section):
    """A table in a table."""

    inner: Detailed = Detailed()


@pytest.mark.parametrize("key", ["inner.detail", "inner.other_detail"])
def test_a_tables_own_rows_hold_wherever_it_stands(key):
    with pytest.raises(ConfigError) as caught:
        check_effect(Outer(), [key])
    assert str(caught.value) == (
        f"{key} is set, but it has no effect here: it needs inner.switch to be set, and that is False. Something else "
        f"does it. Leave {key} out, or set inner.switch so."
    )
    check_effect(Outer(inner=Detailed(switch=True)), [key])
    check_effect(Outer(), [key], ignored=["inner.switch"])
    check_effect(Outer(), ["inner.switch"])
