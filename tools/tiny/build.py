"""The tiny policy: trained from scratch, by supervised learning on demonstrations about pretraining worlds.

    for step = 1 .. steps:
        every few steps a new world of the pretraining split, indexed
        demonstrations about it (`tools.tiny.demonstrations`) until the token budget is full;
            in the first steps only copying and reading, then the whole mixture
        one optimizer step on the cross-entropy of the tokens that the policy would write

The variant that browses is trained in the same way, but gently and from a policy that can read and copy already, on
demonstrations about the worlds' sites (`tools.tiny.web_demonstrations`).

Everything follows from the recipe. An interrupted build resumes from its last checkpoint.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.optim import adamw
from evoseek.learner.settings import LearnerSettings
from evoseek.loss.base import LossInputs
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import load_policy, save_policy
from evoseek.models.policy import Policy
from evoseek.renderers.tags import TagRenderer
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.checkpoints import Checkpoint
from evoseek.training.supervised import SupervisedRun
from evoseek.types import Message, TrainingSample
from evoseek.world.site import Site
from evoseek.world.world import World
from tools.tiny.demonstrations import Demonstration, DemonstrationShares, Demonstrator
from tools.tiny.model import tiny_config, tiny_model
from tools.tiny.more_tags import add_tags
from tools.tiny.muon import MuonAdamW
from tools.tiny.tokenizer import END, PADDING, tiny_tokenizer
from tools.tiny.web_demonstrations import WebDemonstrator, WebMixture

PASSAGES_SHOWN = 3
COPYING = DemonstrationShares(solve=0, propose=0, trace=0, read=0.75, copy=0.25)
FLAWLESS = WebMixture(no_browse=0.0, early_stop=0.0)


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """Everything that a build depends on. `tokens_per_step` counts prompts and observations too."""

    seed: int = 0
    steps: int = 700
    copying_steps: int = 40
    tokens_per_step: int = 16_384
    steps_per_world: int = 3
    entities: tuple[int, ...] = (200, 300, 400, 600)
    learning_rate: float = 0.02
    warmup_steps: int = 20
    mixture: DemonstrationShares = field(default_factory=DemonstrationShares)

    def fingerprint(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class WebRecipe:
    """Everything that a build of the variant `web` depends on. It begins with the policy `start`; the demonstrations of
    the first `flawless_steps` steps leave nothing out, so that there is enough of browsing to learn it from."""

    start: str = "tiny"
    seed: int = 0
    steps: int = 400
    flawless_steps: int = 300
    tokens_per_step: int = 16_384
    steps_per_world: int = 3
    entities: tuple[int, ...] = (200, 300, 400, 600)
    learning_rate: float = 0.002
    warmup_steps: int = 20
    mixture: WebMixture = field(default_factory=WebMixture)

    def fingerprint(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)


Recipe = TinyRecipe | WebRecipe

_READER = DemonstrationShares(solve=0.22, propose=0.16, trace=0.24, read=0.36, copy=0.02, read_retrieved=0.75)
VARIANTS: Mapping[str, DemonstrationShares | WebMixture] = {
    "default": DemonstrationShares(),
    "reader": _READER,
    "weak": replace(_READER, flawed_proposal=0.5),
    "free": DemonstrationShares(propose=0.14, propose_freely=0.22, trace=0, read=0.28, read_retrieved=0.75),
    "web": WebMixture(),
}


def recipe_of(variant: str, *, seed: int, steps: int | None = None) -> Recipe:
    """The recipe of one of `VARIANTS`; `steps` are its own unless others are given."""
    mixture = VARIANTS[variant]
    web = isinstance(mixture, WebMixture)
    recipe = WebRecipe(seed=seed, mixture=mixture) if web else TinyRecipe(seed=seed, mixture=mixture)
    return recipe if steps is None else replace(recipe, steps=steps)


def build(
    directory: Path,
    work: Path,
    recipe: Recipe,
    *,
    progress: Callable[[int, float], None] = lambda step, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: int = 50,
) -> bool:
    """Train the policy and write it to `directory`; checkpoints and `losses.jsonl` go to `work`.

    True when the build is finished, False when `should_stop` ended it early: the same call then resumes it. Raises
    ConfigError if `work` holds a build of another recipe.
    """
    run = SupervisedRun.begin(work, recipe.fingerprint(), partial(_load, recipe), partial(_learner, recipe))
    batches = _batches(recipe, run.policy, first=run.step + 1)
    finished = run.train(
        batches, recipe.steps, progress=progress, should_stop=should_stop, checkpoint_every=checkpoint_every
    )
    if finished:
        save_policy(run.policy, directory)
    return finished


def sample(demonstration: Demonstration, renderer: TagRenderer, policy: Policy) -> TrainingSample:
    """A demonstration in the form of a rollout: the same prompt and observation ids, with the actions in the loss
    mask."""
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


def _load(recipe: Recipe, found: Checkpoint | None) -> Policy:
    """The policy of a checkpoint, or the one to begin with: of a `TinyRecipe` one with random weights."""
    if found is not None:
        return load_policy(str(found.part_directory("policy")))
    if isinstance(recipe, WebRecipe):
        policy = load_policy(recipe.start)
        add_tags(policy, {"browse": "search"})
        return policy
    tokenizer = tiny_tokenizer()
    end, padding = (tokenizer.get_vocab()[name] for name in (END, PADDING))
    config = tiny_config(len(tokenizer), eos_token_id=end, pad_token_id=padding)
    return Policy(tiny_model(config, recipe.seed), tokenizer, "tiny")


def _learner(recipe: Recipe, policy: Policy) -> Learner[LossInputs]:
    rate, warmup = recipe.learning_rate, recipe.warmup_steps
    settings = LearnerSettings(learning_rate=rate, warmup_steps=warmup, token_budget=8192, bf16=True)
    context = LearnerContext(LogprobModel(policy.model), CrossEntropyLoss(), total_steps=recipe.steps)
    return Learner(settings, context, adamw if isinstance(recipe, WebRecipe) else MuonAdamW)


def _batches(recipe: Recipe, policy: Policy, first: int) -> Iterator[list[TrainingSample]]:
    """The batches from step `first` on. Each step's follow from the recipe and the step alone."""
    step, renderer = first, TagRenderer(policy.tokenizer)
    while True:
        number = (step - 1) // recipe.steps_per_world
        rng = random.Random(f"tiny-world/{recipe.seed}/{number}")
        world = World.generate(recipe.seed * 1_000_003 + number, rng.choice(recipe.entities), "pretrain")
        with TemporaryDirectory() as folder:
            demonstrator = _demonstrators(recipe, world, Path(folder) / "index")
            while (step - 1) // recipe.steps_per_world == number:
                rng = random.Random(f"tiny-step/{recipe.seed}/{step}")
                yield _fill(demonstrator(step, rng), renderer, policy, recipe.tokens_per_step)
                step += 1


def _demonstrators(
    recipe: Recipe, world: World, folder: Path
) -> Callable[[int, random.Random], Demonstrator | WebDemonstrator]:
    """The writer of a step's demonstrations about a world, from the step's number and random numbers."""
    if isinstance(recipe, WebRecipe):
        site = Site(world, world.seed)
        index = LexicalIndex.build(folder, site.passages())
        flawless, mixture = recipe.flawless_steps, recipe.mixture
        return lambda step, rng: WebDemonstrator(site, index, FLAWLESS if step <= flawless else mixture, rng)
    copying, usual = recipe.copying_steps, recipe.mixture
    retrieve = partial(world_index(world, folder).find, k=PASSAGES_SHOWN)
    return lambda step, rng: Demonstrator(world, retrieve, COPYING if step <= copying else usual, rng)


def _fill(
    demonstrator: Demonstrator | WebDemonstrator, renderer: TagRenderer, policy: Policy, tokens: int
) -> list[TrainingSample]:
    samples: list[TrainingSample] = []
    total = 0
    while total < tokens:
        samples.append(sample(demonstrator.draw(), renderer, policy))
        total += len(samples[-1].token_ids)
    return samples
