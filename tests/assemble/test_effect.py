"""Settings that were changed and do nothing are refused, with what they need; those that nobody changed are not."""

import json

import pytest
from evoseek.assemble.effect import check_effect, check_given
from evoseek.config import SYSTEMS, load_config

from evoseek.errors import ConfigError


@pytest.mark.parametrize(
    ("system", "given", "words"),
    [
        ("search-r1", ["web.provider=searxng"], "web.provider is set, .* run.system to be deepresearcher"),
        ("dspo", ["browse.page_words=3"], "train deepresearcher"),
        ("zerosearch", ["reader.model=x"], "train deepresearcher"),
        ("deepresearcher", ["simulator.model=x"], "train zerosearch"),
        ("search-r1", ["zerosearch.noise_end=0.5"], "train zerosearch"),
        ("search-r1", ["proposer.attempts=3"], "train dr-zero or ssp"),
        ("dr-zero", ["ssp.fill=dummy"], "train ssp"),
        ("ssp", ["dr_zero.solver_steps=3"], "train dr-zero"),
        ("ssp", ["proposer.frozen=true"], 'ssp.train = "solver" keeps the proposer'),
        ("ssp", ["proposer.max_source_tokens=9"], "begins with an answer"),
        ("ssp", ["proposer.learning_rate=1e-5"], "learner.learning_rate"),
        ("ssp", ["rollout.group_size=4"], "ssp has proposer.attempts"),
        ("dr-zero", ["questions.path=q.jsonl"], "evaluation.path"),
        ("ssp", ["reward.overlong_max=20", "reward.overlong_cache=4"], "overlong.* has no effect"),
        ("deepresearcher", ["search.attempts=9"], "searches the web"),
        ("search-r1", ["judge.model=x"], "reward.metric to be judge"),
        ("search-r1", ["critic.lam=0.9"], "algorithm.advantage to be gae"),
        ("search-r1", ["algorithm.advantage=raw", "algorithm.scale=none"], "algorithm.advantage to be group"),
        ("search-r1", ["algorithm.loss=reinforce", "algorithm.clip_low=0.1"], "something else than reinforce"),
        ("search-r1", ["algorithm.kl_estimator=k1"], "algorithm.kl_coefficient to be above 0, and that is 0.0"),
        (
            "search-r1",
            ["algorithm.kl_coefficient=0.1", "algorithm.kl_in=reward", "algorithm.kl_estimator=k1"],
            "algorithm.kl_in to be loss",
        ),
        ("search-r1", ["algorithm.importance_cap=3.0"], "algorithm.importance"),
        ("search-r1", ["lora.alpha=64.0"], "lora.rank to be above 0, and that is 0"),
        ("search-r1", ["evaluation.every=5"], "evaluation.path to be given"),
        ("dr-zero", ["verification.noise_passages=1"], "verification.from_passages"),
        ("ssp", ["ssp.fill=replay", "ssp.reset_every=3"], "replay-reset"),
        ("ssp", ["ssp.resample_limit=3"], "resample"),
        ("ssp", ["proposer.scale=none"], "proposer.advantage to be group"),
        ("zerosearch", ["simulator.model=x", "simulator.timeout_s=3"], "simulator.base_url to be given"),
        ("zerosearch", ["simulator.base_url=http://x", "simulator.dtype=bfloat16"], "simulator.base_url to be empty"),
        ("deepresearcher", ["web.cache_days=3"], "web.cache"),
        ("deepresearcher", ["reader.model=x", "browse.page_words=3"], "reader.model to be empty"),
    ],
)
def test_what_does_nothing_is_refused(system, given, words):
    with pytest.raises(ConfigError, match=words):
        check_effect(load_config(system=system, sets=given))


@pytest.mark.parametrize(
    ("system", "given"),
    [
        ("search-r1", ["critic.lam=1.0", "lora.alpha=32.0", "evaluation.every=10", "web.provider="]),  # the defaults
        ("search-r1", ["algorithm.advantage=gae", "critic.lam=0.9"]),
        ("search-r1", ["lora.rank=8", "lora.alpha=64.0"]),
        ("search-r1", ["evaluation.path=q", "evaluation.every=5"]),
        ("search-r1", ["algorithm.kl_coefficient=0.1", "algorithm.kl_estimator=k1"]),
        ("search-r1", ["asked.model=x"]),  # for `evoseek ask --run-dir`
        ("dspo", ["algorithm.loss=reinforce", "algorithm.mini_batches=1"]),  # clip_low is dspo's, and nobody set it
        ("zerosearch", ["search.index=i", "simulator.base_url=http://x", "simulator.timeout_s=3"]),
        ("deepresearcher", ["web.provider=json", 'web.api={results="r"}', "web.options={gl='se'}"]),
        ("ssp", ["proposer.advantage=group", "proposer.scale=none", "ssp.reset_every=3"]),
    ],
)
def test_what_does_something_is_not(system, given):
    check_effect(load_config(system=system, sets=given))


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_saved_config_of_a_run_holds_every_setting_and_loads(tmp_path, system):
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(load_config(system=system).resolved()))
    check_effect(load_config(saved))


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        ("eval", ["asked.model=x"], r"`evoseek eval` does not use it\. .* `evoseek ask`"),
        ("eval", ["learner.learning_rate=1.0"], "`evoseek simulator tune`"),
        ("ask", ["evaluation.limit=3"], "`evoseek ask` does not use it"),
        ("ask", ["web.provider=searxng"], "train deepresearcher"),
        ("eval", ["judge.model=x"], "reward.metric to be judge"),
        ("propose", ["dr_zero.iterations=5"], "it is for `evoseek train`"),
        ("simulator tune", ["lora.alpha=3.0"], "lora.rank"),
        ("data filter", ["policy.model=x"], "`evoseek data filter` does not use it"),
    ],
)
def test_what_a_command_does_not_use_is_refused(command, given, words):
    with pytest.raises(ConfigError, match=words):
        check_given(load_config(sets=given), command, given)


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("eval", ["evaluation.limit=3", "evaluation.temperature=0.0"]),  # on the questions of questions.path
        ("ask", ["asked.base_url=http://x", "asked.timeout_s=3", "asked.model=x"]),
        ("data filter", ["judge.model=x"]),
        ("simulator check", ["simulator.model=x"]),
    ],
)
def test_what_it_does_use_is_not(command, given):
    check_given(load_config(sets=given), command, given)
    with_file = load_config(sets=[*given, "learner.warmup_steps=3"])
    check_given(with_file, command, given)  # a file may be shared with other commands
