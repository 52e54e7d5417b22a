"""The tuning of a simulated search engine, from settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import SimulatorPrompts
from evoseek.learner.checkpoint import Checkpoint
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.base import LossInputs
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.policy.policy import Policy, prompts_of
from evoseek.registry import build
from evoseek.runs import with_digests
from evoseek.simulator.records import SearchRecord
from evoseek.simulator.tuning import ExampleMaker, TuningData
from evoseek.systems.zerosearch import ZeroSearch
from evoseek.training.inputs import inputs_of
from evoseek.training.supervised import SupervisedRun
from evoseek.training.trainer import check_dtype, load_trainable


def begin_tuning(
    settings: ZeroSearch.Settings, records: Path, work: Path, *, steps: int, tokens_per_step: int
) -> SupervisedRun:
    """The policy of the settings on its way to a simulator, from the last checkpoint in `work` if there is one.

    Raises ConfigError, also if `work` was begun with other settings or records.
    """
    tables = with_digests(settings.resolved(), inputs_of(settings))
    recipe = {
        "records": sha256(records.read_bytes()).hexdigest(),
        "steps": steps,
        "tokens_per_step": tokens_per_step,
        "documents": settings.search.top_k,
        "max_words": settings.simulator.max_words,
        "prompts": cast("dict[str, object]", tables["simulator"])["prompts"],
        "seed": settings.run.seed,
        **{section: tables[section] for section in ("policy", "lora", "learner")},
    }

    def load(checkpoint: Checkpoint | None) -> Policy:
        policy = load_trainable(settings, checkpoint, device=settings.policy.device)
        check_dtype(settings, policy)
        return policy

    def learner(policy: Policy) -> Learner[LossInputs]:
        """Its learning rate falls to 0 at the last step."""
        context = LearnerContext(
            LogprobModel(policy.model), CrossEntropyLoss(), total_steps=steps, active=policy.active
        )
        return build("learner", settings.learner, context)

    return SupervisedRun.begin(work, json.dumps(recipe, indent=1, sort_keys=True), load, learner)


def tuning_data(settings: ZeroSearch.Settings, policy: Policy, records: Sequence[SearchRecord]) -> TuningData:
    """The records as examples for a policy: asked as it will be as a simulator, for replies of search.top_k documents.

    Raises ConfigError or DataError.
    """
    longest = getattr(
        policy.model.config.get_text_config(), "max_position_embeddings", settings.simulator.max_total_tokens
    )
    maker = ExampleMaker(
        policy.tokenizer,
        SimulatorPrompts(load_prompts(prompts_of(policy, settings.simulator.prompts))),
        documents=settings.search.top_k,
        max_words=settings.simulator.max_words,
        max_length=int(longest),
    )
    return TuningData.of(records, maker)
