"""Tables of settings: what is given over defaults, parts by name, and what is said of a mistake."""

import os
import subprocess
import sys
from typing import Annotated

import pytest
from pydantic import Field, SerializeAsAny

from evoseek.assembly.sources import load_settings
from evoseek.config.registry import KINDS, find, settings_class
from evoseek.config.sections import (
    MANY,
    Chosen,
    Needs,
    PartSettings,
    Section,
    check_settings,
    defaults_of,
    is_given,
    lookup,
    part,
    parts,
    read_settings,
    table,
    tables,
    with_setting,
)
from evoseek.credit import CreditPart
from evoseek.errors import ConfigError
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.settings import LossPart, LossSettings
from evoseek.selfplay.settings import ProposerSettings
from evoseek.storage.runs import flatten
from evoseek.systems.deepresearcher import DeepResearcher
from evoseek.systems.dr_zero import DrZero
from evoseek.systems.search_r1 import SearchR1
from evoseek.systems.ssp import SSP

SYSTEMS = ("search-r1", "dspo", "zerosearch", "deepresearcher", "dr-zero", "ssp")


class Bounds(Section):
    """Two numbers that go together."""

    low: int = Field(default=1, ge=0)
    high: int = 5

    def problems(self):
        """They are in order."""
        if self.low > self.high:
            yield f"low is {self.low}, above high. Lower it."


class Small(Section):
    """Tables and parts, with defaults of their own."""

    loss: LossPart = part("sequence", clip_low=0.5)
    credits: tuple[CreditPart, ...] = parts("raw", "group")
    bounds: Bounds = table(low=2)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("learner.learning_rat", "unknown setting learner.learning_rat (did you mean learner.learning_rate?)"),
        ("learnr.learning_rate", "did you mean learner?"),
        ("learning_rate", "did you mean learner.learning_rate or critic.learning_rate?"),
        ("token_budget", "did you mean learner.token_budget?"),
        ("loss.clip_lo", "did you mean loss.clip_low?"),
    ],
)
def test_unknown_keys_name_the_nearest(key, hint):
    with pytest.raises(ConfigError) as caught:
        load_settings(sets=[f"{key}=1"])
    assert hint in str(caught.value)
    assert "`evoseek list` lists every setting" in str(caught.value)


def test_a_key_like_no_other_gets_no_hint():
    with pytest.raises(ConfigError, match=r"unknown setting zzz[.]"):
        load_settings(sets=["zzz.qqqq=1"])


@pytest.mark.parametrize(
    "text",
    [
        "learner.learning_rate=inf",
        "learner.learning_rate=nan",
        "learner.learning_rate=1e9",
        "rollout.temperature=1e-9",
        "rollout.temperature=100",
        "sampler.slots=1000000000000",
        "rollout.max_total_tokens=1000000000000",
        "evaluation.temperature=0.001",
        "run.seed=100000000000000000000",
        f"run.steps={'9' * 5000}",
        f"run.steps={'[' * 100_000}",
    ],
)
def test_numbers_beyond_any_use_are_refused(text):
    with pytest.raises(ConfigError, match=text.partition("=")[0]):
        load_settings(sets=[text])


def test_defaults_are_valid_and_frozen():
    with pytest.raises(Exception, match="frozen"):
        SearchR1.Settings().run.steps = 3


def test_one_of_several_kinds_of_value_is_asked_for_by_the_settings_own_name():
    with pytest.raises(ConfigError, match=r"loss\.aggregate is 0: .*loss\.aggregate is 0: ") as caught:
        load_settings(sets=["loss.aggregate=0"])
    assert "literal[" not in str(caught.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        load_settings(sets=["run.step=1", "loss.clip_low=-1", "run.seed=x"])
    assert all(words in str(caught.value) for words in ("unknown setting run.step", "loss.clip_low is -1", "run.seed"))


@pytest.mark.parametrize(
    "text",
    [
        "proposer.ratio=[0, 0]",
        "proposer.ratio=[1, -1]",
        "proposer.ratio=[1e308, 1e308]",
        "proposer.attempts=0",
        "proposer.temperature=0",
        "proposer.difficulty=hard",
        "filters.near_duplicates=1.5",
        "filters.min_words=0",
        "verification.noise_passages=-1",
        "verification.passages=all",
        "selfplay.label=gold",
        "reward.evidence_weight=-0.1",
        "dr_zero.writing_steps=0",
        "dr_zero.writing_temperature=0.001",
        "ssp.fill=refill",
        "ssp.train=neither",
    ],
)
def test_settings_of_self_play_that_mean_nothing_are_refused(text):
    system = "dr-zero" if text.startswith("dr_zero") else "ssp"
    key = text.partition("=")[0]
    with pytest.raises(ConfigError, match=key) as caught:
        load_settings(system=system, sets=[text])
    assert "unknown" not in str(caught.value)


def test_the_defaults_of_dr_zero_and_ssp():
    """Dr. Zero ends with its phases; Search Self-play is REINFORCE on 1 - mean for the proposer, verified, with GRPO of
    five attempts for the solver."""
    dr_zero, ssp = DrZero.Settings(), SSP.Settings()
    assert dr_zero.run.steps == MANY
    assert (dr_zero.proposer.ratio, dr_zero.proposer.attempts) == ((4.0, 3.0, 2.0, 1.0), 5)
    assert (dr_zero.proposer.difficulty, dr_zero.group_by) == ("linear", "requested")
    assert (dr_zero.proposer.credit.name, dr_zero.proposer.credit.singleton) == ("group", "zero")
    assert (dr_zero.proposer.loss.name, dr_zero.proposer.loss.aggregate) == ("reinforce", "token-mean")
    assert (ssp.proposer.difficulty, ssp.proposer.credit.name, ssp.proposer.rejected_reward) == ("failure", "raw", 0.0)
    assert (ssp.proposer.loss.name, ssp.proposer.loss.aggregate) == ("reinforce", "sequence-sum")
    assert (ssp.proposer.attempts, ssp.ssp.fill, ssp.ssp.train, ssp.group_by) == (5, "replay-reset", "both", "task")
    assert (ssp.verification.readings, ssp.verification.noise_passages) == (1, 4)
    assert ssp.filters.min_searches == 1


def test_the_defaults_of_the_other_systems():
    """Each is the defaults that all have, but for what its paper does otherwise."""
    own = {
        "search-r1": {},
        "dspo": {
            "reward.name": "guarded_substring_match",
            "loss.name": "sequence",
            "loss.clip_low": 3e-4,
            "loss.clip_high": 4e-4,
            "algorithm.mini_batches": 4,
            "dspo.limit": 4,
        },
        "zerosearch": {
            "reward.name": "f1",
            "credit.name": "raw",
            "loss.name": "reinforce",
            "loss.aggregate": "sequence-sum",
            "search.top_k": 5,
        },
        "deepresearcher": {
            "reward.name": "format_f1",
            "search.top_k": 10,
            "tools": [{"name": "web_search"}, {"name": "browse"}],
            "rollout.group_size": 16,
            "rollout.max_tool_calls": 10,
            "rollout.max_malformed": 0,
            "rollout.max_turns": 12,
            "rollout.final_answer": True,
            "rollout.wait_s": 600.0,
        },
    }
    plain = flatten(SearchR1.Settings().resolved())
    tables_of_their_own = ("zerosearch.", "simulator.", "web.", "browse.", "reader.")
    for system, expected in own.items():
        resolved = flatten(load_settings(system=system).resolved())
        assert {key: resolved[key] for key in expected} == expected
        others = {key: value for key, value in resolved.items() if key not in {*expected, "run.system"}}
        others = {key: value for key, value in others.items() if not key.startswith(tables_of_their_own)}
        assert others.items() <= plain.items()


@pytest.mark.parametrize("given", ["reinforce", {"name": "reinforce"}])
def test_a_part_is_named_by_a_text_or_a_table(given):
    loss = read_settings(Small, {"loss": given}).loss
    assert (loss.name, loss.aggregate) == ("reinforce", "sequence-sum")  # its own defaults, none of the one before


def test_another_part_starts_from_its_own_defaults_and_the_same_one_goes_on():
    assert read_settings(Small).loss == SequenceLoss.Settings(name="sequence", clip_low=0.5)
    for same in ("sequence", {"name": "sequence"}, {}):
        assert read_settings(Small, {"loss": same}).loss.clip_low == 0.5
    assert read_settings(Small, {"loss": {"clip_high": 0.25}}).loss == SequenceLoss.Settings(
        name="sequence", clip_low=0.5, clip_high=0.25
    )
    assert read_settings(Small, {"loss": "clipped"}).loss == ClippedLoss.Settings(name="clipped")
    first = {"loss": {"name": "clipped", "clip_low": 0.125}}
    two_files = read_settings(Small, first, {"loss": {"clip_high": 0.25}}).loss
    assert (two_files.name, two_files.clip_low, two_files.clip_high) == ("clipped", 0.125, 0.25)
    assert read_settings(Small, first, {"loss": "sequence"}).loss.clip_low == 0.5


@pytest.mark.parametrize(
    ("sets", "loss"),
    [
        (["loss=sequence"], ("sequence", 3e-4)),
        (["loss.name=sequence"], ("sequence", 3e-4)),
        (["loss.name=sequence", "loss.clip_low=0.5"], ("sequence", 0.5)),
        (["loss.clip_low=0.5", "loss=sequence"], ("sequence", 0.5)),
        (["loss.clip_low=0.5"], ("clipped", 0.5)),
    ],
)
def test_a_part_is_chosen_with_set(sets, loss):
    settings = load_settings(sets=sets)
    assert (settings.loss.name, settings.loss.clip_low) == loss


def test_a_list_of_parts_is_of_names_and_tables_and_replaced_as_a_whole():
    def credits(given):
        return [(one.name, getattr(one, "scale", None)) for one in read_settings(Small, {"credits": given}).credits]

    assert [one.name for one in read_settings(Small).credits] == ["raw", "group"]
    assert credits(["group", {"name": "group", "scale": "none"}]) == [("group", "std"), ("group", "none")]
    assert credits("whitened") == [("whitened", None)]
    assert credits([]) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loss": 3}, r"loss is 3: expected a name, or a table such as \[loss\] with a name"),
        ({"loss": {"name": 3}}, "loss.name is 3: expected the name of a loss"),
        ({"loss": ""}, "loss.name is '': expected the name of a loss"),
        ({"loss": "sequenc"}, "There is no loss 'sequenc'. Did you mean sequence"),
        ({"loss": {"name": "reinforce", "clip_low": 0.1}}, r"setting loss\.clip_low \(reinforce has name, aggregate\)"),
        ({"credits": [3]}, "credits is 3: expected a name"),
        ({"credits": [{"scale": "std"}]}, "credits.0.name is None: expected the name of a credit"),
        ({"credits": ["raw", {"name": "group", "scal": 1}]}, r"setting credits\.1\.scal .*credits\.1\.scale"),
        ({"bounds": 3}, r"bounds is 3: expected a table of settings, such as \[bounds\]"),
        ({"bounds": {"low": -1}}, r"bounds\.low is -1: input should be greater than or equal to 0"),
    ],
)
def test_what_is_no_part_and_no_table_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        read_settings(Small, given)


def test_settings_of_the_wrong_kind_are_refused(tmp_path, monkeypatch):
    (tmp_path / "wrong_settings_part.py").write_text(
        "class Wrong:\n    class Settings: pass\n    def contributes(self, sample): pass\n"
        "    def __call__(self, inputs, totals): pass\n    @classmethod\n    def build(cls, settings, context): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"settings of the wrong kind: .* derived from evoseek\.loss\.settings"):
        read_settings(Small, {"loss": "wrong_settings_part:Wrong"})


def test_the_table_of_a_part_is_also_read_by_pydantic_alone():
    """As a field default, and in a table that a caller makes."""

    class Own(Section):
        loss: Annotated[SerializeAsAny[LossSettings], Chosen("loss", LossSettings)] = part("clipped")

    assert Own().loss == ClippedLoss.Settings(name="clipped")
    assert Own(loss="sequence").loss == SequenceLoss.Settings(name="sequence")
    assert Own(loss={"name": "sequence", "clip_low": 0.5}).loss.clip_low == 0.5
    with pytest.raises(ConfigError, match=r"settings of the loss are not valid: unknown setting loss\.clip_lw"):
        Own(loss={"name": "sequence", "clip_lw": 0.5})
    assert ProposerSettings().credit.singleton == "zero"


def test_everything_is_saved_the_settings_of_parts_too():
    assert read_settings(Small).resolved() == {
        "loss": {"name": "sequence", "clip_low": 0.5, "clip_high": 4e-4},
        "credits": [{"name": "raw"}, {"name": "group", "scale": "std", "singleton": "zero"}],
        "bounds": {"low": 2, "high": 5},
    }


def test_settings_of_built_in_parts_are_those_of_the_parts():
    every = [(kind, name) for kind in KINDS for name in KINDS[kind].settings]
    assert all(find(kind, name).Settings is settings_class(kind, name) for kind, name in every)


def test_settings_of_built_in_parts_are_read_without_torch():
    code = (
        "import sys\n"
        "from evoseek.errors import ConfigError\n"
        "from evoseek.config.registry import KINDS, settings_class\n"
        "from evoseek.assembly.sources import load_settings\n"
        "for system in sys.argv[1:]:\n"
        "    assert load_settings(system=system, sets=['loss=sequence']).loss.clip_low < 1e-3\n"
        "for text in ('run.step=1', 'loss=sequenc', 'loss.clip_lw=3', 'credit.scal=1', 'sampler.x=1'):\n"
        "    try:\n"
        "        load_settings(sets=[text])\n"
        "    except ConfigError:\n"
        "        continue\n"
        "    raise AssertionError(text)\n"
        "assert all(settings_class(kind, name) for kind in KINDS for name in KINDS[kind].settings)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # packages of their own are found as here
    subprocess.run([sys.executable, "-c", code, *SYSTEMS], env=paths, check=True)


def test_a_setting_is_looked_up_by_its_dotted_name():
    settings = read_settings(Small, {"bounds": {"high": 9}})
    assert lookup(settings, "bounds.high") == 9
    assert lookup(settings, "loss.clip_low") == 0.5
    assert lookup(settings, "loss.nothing") is None
    assert lookup(settings, "nothing.at.all") is None
    assert dict(tables(settings)).keys() == {"", "loss", "credits", "bounds"}


def test_given_is_what_a_user_or_the_defaults_of_the_whole_set():
    settings = read_settings(Small, {"bounds": {"high": 9}})
    given = [key for key in ("bounds.low", "bounds.high", "loss.clip_low", "loss.clip_high") if is_given(settings, key)]
    assert given == ["bounds.low", "bounds.high", "loss.clip_low"]
    assert not is_given(settings, "nothing.at.all")
    changed = with_setting(settings, "loss.clip_high", 0.25)
    assert (changed.loss.clip_high, is_given(changed, "loss.clip_high")) == (0.25, True)
    assert settings.loss.clip_high == 4e-4
    assert with_setting(changed, "loss.name", "sequence") == changed
    assert with_setting(changed, "loss.name", "clipped").loss == ClippedLoss.Settings(name="clipped")
    assert is_given(DeepResearcher.Settings(), "rollout.max_malformed")
    assert not is_given(SearchR1.Settings(), "rollout.max_malformed")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_defaults_of_settings_are_those_of_the_same_parts(system):
    given = {"loss.name": "sequence", "loss.clip_high": 0.5, "rollout.max_turns": 7, "run.seed": 3}
    settings = load_settings(system=system, options=given)
    defaults = defaults_of(settings)
    assert (defaults.run.system, defaults.run.seed) == (system, 0)
    assert type(defaults.loss) is SequenceLoss.Settings
    assert lookup(defaults, "loss.clip_high") == lookup(
        load_settings(system=system, options={"loss.name": "sequence"}), "loss.clip_high"
    )
    assert defaults.rollout == load_settings(system=system).rollout


def test_what_does_not_go_together_is_refused_in_every_table():
    check_settings(read_settings(Small))
    with pytest.raises(ConfigError, match=r"low is 2, above high\. Lower it\."):
        check_settings(read_settings(Small, {"bounds": {"high": 1}}))


def test_a_switch_in_words():
    for wanted, value, holds, words in (
        ((True,), 0.5, True, "set"),
        ((True,), "", False, "set"),
        ((False,), "", True, "left out"),
        ((False,), "x", False, "left out"),
        (("a", "b"), "b", True, "a or b"),
        (("a", "b"), "c", False, "a or b"),
        (("a", "b"), "mine.parts:Own", True, "a or b"),  # which may need any setting
        ((False,), "mine.parts:Own", False, "left out"),
    ):
        needs = Needs("key", "switch", wanted)
        assert (needs.holds(value), needs.words) == (holds, words)
    assert not Needs("key", "switch", ("a", "b"), own_has_none=True).holds("mine.parts:Own")


def test_the_base_of_all_parts_has_a_name():
    assert PartSettings(name="x").resolved() == {"name": "x"}
