"""Settings of self-play that have no sense together are refused with a remedy."""

import re
from typing import get_args

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.config.sections import check_settings
from evoseek.errors import ConfigError
from evoseek.selfplay.proposer_reward import DIFFICULTIES
from evoseek.selfplay.settings import ProposerSettings

ALONE = {"proposer.credit.name": "group"}


def check(system, options):
    check_settings(load_settings(system=system, options=options))


@pytest.mark.parametrize(
    ("system", "options", "words"),
    [
        ("dr-zero", {"proposer.attempts": 1}, r"proposer\.attempts is 1, .*linear.*to 2 or more"),
        *[
            ("ssp", {"proposer.attempts": 1, "proposer.difficulty": name}, f"attempts is 1, .*{name}.*to failure")
            for name in DIFFICULTIES
            if name != "failure"
        ],
        (
            "dr-zero",
            {"credit.name": "gae"},
            r"credit\.name is gae, but self-play trains no critic\. Set it to group",
        ),
        ("ssp", {"proposer.credit.name": "gae"}, r"proposer\.credit\.name is gae, but self-play .*whitened or raw"),
        ("ssp", {"proposer.temperature": 0.5}, r"proposer\.temperature is 0\.5 and rollout\.temperature 1\.0"),
        (
            "ssp",
            {"reward.name": "judge", "selfplay.label": "majority"},
            r"votes are compared .* one of exact_match",
        ),
        (
            "ssp",
            {"reward.name": "fan_out", "selfplay.label": "majority"},
            r"fan_out, but votes .* one of exact_match",
        ),
        ("ssp", {"reward.name": "format_f1"}, r"reward\.name is format_f1, which goes down to -1.*name to f1"),
        ("ssp", ALONE, r"never learns\. Set proposer\.per_task to 2 or more"),
        ("ssp", {**ALONE, "ssp.train": "proposer", "proposer.credit.singleton": "drop"}, "never learns"),
        ("dr-zero", {"proposer.max_turns": 3}, r"up to 4 hops, made with 3 searches.*room for 2\..*max_turns to 4"),
        ("ssp", {"proposer.max_turns": 3}, r"up to 3 searches, .*room for 2\. Set proposer\.max_turns to 4"),
        ("ssp", {"rollout.max_tool_calls": 2}, r"room for 2\. Set rollout\.max_tool_calls to 3"),
        ("dr-zero", {"rollout.max_tool_calls": 0, "proposer.ratio": [0, 1]}, r"2 hops.*max_tool_calls to 1"),
        ("dr-zero", {"proposer.frozen_after": 3}, r"frozen_after is 3, .*iterations 3 .*this changes nothing"),
        ("dr-zero", {"proposer.frozen_after": 1, "dr_zero.proposer_steps": 0}, r"proposer_steps 0 .*Leave it out"),
        (
            "dr-zero",
            {"dr_zero.one_policy": True, "proposer.temperature": 0.5},
            r"proposer\.temperature is 0\.5 and rollout\.temperature 1\.0, .*one_policy.*the same value",
        ),
        ("ssp", {"proposer.ratio": []}, r"proposer\.ratio is \[\], but in ssp .*Set proposer\.ratio to shares"),
    ],
)
def test_what_is_refused(system, options, words):
    with pytest.raises(ConfigError, match=words):
        check(system, options)


def test_every_difficulty_can_be_chosen():
    assert get_args(ProposerSettings.model_fields["difficulty"].annotation) == tuple(DIFFICULTIES)


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ("dr-zero", {}),
        ("dr-zero", {"policy.dtype": "bfloat16"}),
        ("ssp", {}),
        ("ssp", {"proposer.attempts": 1}),
        ("dr-zero", {"proposer.attempts": 1, "proposer.difficulty": "failure"}),
        ("dr-zero", {"proposer.attempts": 2}),
        ("dr-zero", {"proposer.per_task": 2}),
        ("ssp", {**ALONE, "ssp.train": "solver"}),
        ("ssp", {**ALONE, "proposer.per_task": 2}),
        ("ssp", {**ALONE, "proposer.credit.singleton": "raw"}),
        ("dr-zero", {"proposer.frozen_after": 0}),
        ("dr-zero", {"proposer.max_turns": 4, "rollout.max_tool_calls": 3}),
        ("ssp", {"proposer.max_turns": 4, "rollout.max_tool_calls": 3}),
        ("ssp", {"proposer.max_turns": 3, "proposer.ratio": [1, 1, 0]}),
        ("dr-zero", {"proposer.max_turns": 1, "rollout.max_tool_calls": 0, "proposer.ratio": [1]}),
        ("dr-zero", {"proposer.ratio": [], "proposer.max_turns": 1, "rollout.max_tool_calls": 0}),
    ],
)
def test_what_is_not(system, options):
    check(system, options)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("proposer.frozen_after", -1, "0"),
        ("proposer.frozen_after", 1.5, "integer"),
        ("proposer.ratio", [0, 0], "at least one share must be above 0"),
    ],
)
def test_what_is_no_number_of_iterations_and_no_shares_is_refused(key, value, words):
    with pytest.raises(ConfigError, match=f"(?s){re.escape(key)}.*{words}"):
        load_settings(system="dr-zero", options={key: value})


def test_hops_are_requested_and_the_proposer_learns_to_the_end_unless_it_is_said():
    proposer = load_settings(system="dr-zero").proposer
    assert (proposer.ratio, proposer.frozen_after) == ((4.0, 3.0, 2.0, 1.0), None)


@pytest.mark.parametrize(
    ("ratio", "longest", "searches"), [([], 0, 0), ([1], 1, 0), ([0, 0, 1, 0], 3, 2), ([4, 3, 2, 1], 4, 3)]
)
def test_the_longest_question_is_as_long_as_the_last_share_and_0_without_any(ratio, longest, searches):
    settings = load_settings(system="dr-zero", options={"proposer.ratio": ratio})
    assert (settings.longest, settings.searches) == (longest, (searches, "hops"))
