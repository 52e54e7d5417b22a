"""The tiny policy: trained from scratch, by supervised learning on demonstrations about pretraining worlds.

    for step = 1 .. steps:
        every few steps a new world of the pretraining split, indexed
        demonstrations about it (`evoseek.systems.demonstrations`) until the token budget is full;
            in the first steps only copying and reading, then the whole mixture
        one optimizer step on the cross-entropy of the tokens that the policy would write

Everything follows from the recipe. A build that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.corpus.world import World
from evoseek.learner.checkpoint import Checkpoint
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.muon import MuonAdamW
from evoseek.loss.base import LossInputs
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.policy.load import load_policy, save_policy
from evoseek.policy.policy import Policy
from evoseek.policy.tags import TagRenderer
from evoseek.policy.tiny_model import tiny_config, tiny_model
from evoseek.policy.tiny_tokenizer import END, PADDING, tiny_tokenizer
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.demonstrations import Demonstration, Demonstrator, Mixture
from evoseek.systems.supervised import SupervisedProgress, SupervisedRun
from evoseek.types import Message, TrainingSample

PASSAGES_SHOWN = 3
COPYING = Mixture(solve=0, propose=0, trace=0, read=0.75, copy=0.25)


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """All that a build depends on. `tokens_per_step` counts prompts and observations too."""

    seed: int = 0
    steps: int = 700
    copying_steps: int = 40
    tokens_per_step: int = 16_384
    steps_per_world: int = 3
    entities: tuple[int, ...] = (200, 300, 400, 600)
    learning_rate: float = 0.02
    warmup_steps: int = 20
    mixture: Mixture = field(default_factory=Mixture)

    def fingerprint(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)


_READER = Mixture(solve=0.22, propose=0.16, trace=0.24, read=0.36, copy=0.02, read_retrieved=0.75)
VARIANTS: Mapping[str, Mixture] = {
    "default": Mixture(),
    "reader": _READER,
    "weak": replace(_READER, flawed_proposal=0.5),
}


def build(
    directory: Path,
    work: Path,
    recipe: TinyRecipe,
    *,
    progress: Callable[[SupervisedProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: int = 50,
) -> bool:
    """Train the policy and write it to `directory`; checkpoints and `losses.jsonl` go to `work`.

    True when the build is finished, False when `should_stop` ended it early: the same call then goes on. Raises
    ConfigError if `work` holds a build of another recipe.
    """
    run = SupervisedRun.begin(work, recipe.fingerprint(), partial(_load, recipe), partial(_learner, recipe))
    batches = _batches(recipe, TagRenderer(run.policy.tokenizer), run.policy, first=run.step + 1)
    finished = run.train(
        batches, recipe.steps, progress=progress, should_stop=should_stop, checkpoint_every=checkpoint_every
    )
    if finished:
        save_policy(run.policy, directory)
    return finished


def sample(demonstration: Demonstration, renderer: TagRenderer, policy: Policy) -> TrainingSample:
    """A demonstration as the rollout loop would have it: the same prompt and observation ids, the actions masked in."""
    ids: list[int] = []
    mask: list[bool] = []
    for piece in demonstration:
        if piece.kind == "prompt":
            new = renderer.render_prompt([Message("user", piece.text)])
        elif piece.kind == "observation":
            new = renderer.render_observation([piece.text])
        else:
            new = policy.tokenizer.encode(piece.text, add_special_tokens=False)
        ids += new
        mask += [piece.kind == "action"] * len(new)
    zeros = (0.0,) * len(ids)
    return TrainingSample(tuple(ids), tuple(mask), zeros, zeros)


def world_index(world: World, directory: Path) -> LexicalIndex:
    """The world's articles, indexed."""
    return LexicalIndex.build(directory, world.passages())


def _load(recipe: TinyRecipe, found: Checkpoint | None) -> Policy:
    """The policy of a checkpoint, or one with random weights."""
    if found is not None:
        return load_policy(str(found.part_directory("policy")))
    tokenizer = tiny_tokenizer()
    end, padding = (tokenizer.get_vocab()[name] for name in (END, PADDING))
    config = tiny_config(len(tokenizer), eos_token_id=end, pad_token_id=padding)
    return Policy(tiny_model(config, recipe.seed), tokenizer, "tiny")


def _learner(recipe: TinyRecipe, policy: Policy) -> Learner[LossInputs]:
    return Learner(
        LogprobModel(policy.model),
        loss=CrossEntropyLoss(),
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        total_steps=recipe.steps,
        token_budget=8192,
        bf16=True,
        optimizer=MuonAdamW,
    )


def _batches(recipe: TinyRecipe, renderer: TagRenderer, policy: Policy, first: int) -> Iterator[list[TrainingSample]]:
    """The batches from step `first` on. Each step's follow from the recipe and the step alone."""
    step = first
    while True:
        number = (step - 1) // recipe.steps_per_world
        rng = random.Random(f"tiny-world/{recipe.seed}/{number}")
        world = World.generate(recipe.seed * 1_000_003 + number, rng.choice(recipe.entities), "pretrain")
        with TemporaryDirectory() as folder:
            index = world_index(world, Path(folder) / "index")
            while (step - 1) // recipe.steps_per_world == number:
                mixture = COPYING if step <= recipe.copying_steps else recipe.mixture
                rng = random.Random(f"tiny-step/{recipe.seed}/{step}")
                demonstrator = Demonstrator(world, partial(index.find, k=PASSAGES_SHOWN), mixture, rng)
                yield _fill(demonstrator, renderer, policy, recipe.tokens_per_step)
                step += 1


def _fill(demonstrator: Demonstrator, renderer: TagRenderer, policy: Policy, tokens: int) -> list[TrainingSample]:
    samples: list[TrainingSample] = []
    total = 0
    while total < tokens:
        samples.append(sample(demonstrator.draw(), renderer, policy))
        total += len(samples[-1].token_ids)
    return samples
