"""From a config to the tuning of a simulated search engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import cast

from evoseek.assemble.agent import load_trainable
from evoseek.assemble.inputs import inputs_of
from evoseek.assemble.trained import check_dtype, make_supervised_learner
from evoseek.config import Config
from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import SimulatorPrompts
from evoseek.learner.checkpoint import Checkpoint
from evoseek.policy.policy import Policy, prompts_of
from evoseek.runs import with_digests
from evoseek.simulator.records import SearchRecord
from evoseek.simulator.tuning import ExampleMaker, TuningData
from evoseek.training.supervised import SupervisedRun


def begin_tuning(config: Config, records: Path, work: Path, *, steps: int, tokens_per_step: int) -> SupervisedRun:
    """The config's policy on its way to a simulator, from the last checkpoint in `work` if there is one.

    Raises ConfigError, also if `work` was begun with other settings or records.
    """
    settings = with_digests(config.resolved(), inputs_of(config))
    recipe = {
        "records": sha256(records.read_bytes()).hexdigest(),
        "steps": steps,
        "tokens_per_step": tokens_per_step,
        "documents": config.search.top_k,
        "max_words": config.simulator.max_words,
        "prompts": cast("dict[str, object]", settings["simulator"])["prompts"],
        "seed": config.run.seed,
        **{section: settings[section] for section in ("policy", "lora", "learner")},
    }

    def load(checkpoint: Checkpoint | None) -> Policy:
        policy = load_trainable(config, checkpoint, device=config.policy.device)
        check_dtype(config, policy)
        return policy

    return SupervisedRun.begin(
        work,
        json.dumps(recipe, indent=1, sort_keys=True),
        load,
        partial(make_supervised_learner, config, total_steps=steps),
    )


def tuning_data(config: Config, policy: Policy, records: Sequence[SearchRecord]) -> TuningData:
    """The records as examples for a policy: asked as it will be as a simulator, for replies of search.top_k documents.

    Raises ConfigError or DataError.
    """
    longest = getattr(
        policy.model.config.get_text_config(), "max_position_embeddings", config.simulator.max_total_tokens
    )
    maker = ExampleMaker(
        policy.tokenizer,
        SimulatorPrompts(load_prompts(prompts_of(policy, config.simulator.prompts))),
        documents=config.search.top_k,
        max_words=config.simulator.max_words,
        max_length=int(longest),
    )
    return TuningData.of(records, maker)
