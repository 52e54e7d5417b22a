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
from evoseek.errors import ConfigError
from evoseek.files import write_atomic
from evoseek.learner.checkpoint import Part, latest_checkpoint, save_checkpoint
from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.learner.muon import MuonAdamW
from evoseek.loss.base import LossInputs
from evoseek.loss.cross_entropy import CrossEntropyLoss
from evoseek.policy.load import Policy, limit_threads, load_policy, save_policy
from evoseek.policy.tags import TagRenderer
from evoseek.policy.tiny_model import tiny_config, tiny_model
from evoseek.policy.tiny_tokenizer import END, PADDING, tiny_tokenizer
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.demonstrations import Demonstration, Demonstrator, Mixture
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


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """What a watcher sees after each step."""

    step: int
    steps: int
    loss: float


def build(
    directory: Path,
    work: Path,
    recipe: TinyRecipe,
    *,
    progress: Callable[[BuildProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: int = 50,
) -> bool:
    """Train the policy and write it to `directory`; checkpoints and `losses.jsonl` go to `work`.

    True when the build is finished, False when `should_stop` ended it early: the same call then goes on. Raises
    ConfigError if `work` holds a build of another recipe.
    """
    _claim(work, recipe)
    policy, learner, step, losses = _begin(work, recipe)
    renderer = TagRenderer(policy.tokenizer)
    batches = _batches(recipe, renderer, policy, first=step + 1)
    while step < recipe.steps and not should_stop():
        metrics = learner.update(next(batches))
        step += 1
        losses.append(metrics["loss"])
        progress(BuildProgress(step, recipe.steps, metrics["loss"]))
        if step % checkpoint_every == 0 or step == recipe.steps or should_stop():
            save_checkpoint(
                work,
                step=step,
                parts={"policy": Part(partial(save_policy, policy), learner)},
                position={"losses": losses},
            )
    if step < recipe.steps:
        return False
    save_policy(policy, directory)
    lines = (json.dumps({"step": number, "loss": loss}) for number, loss in enumerate(losses, start=1))
    write_atomic(work / "losses.jsonl", "\n".join(lines) + "\n")
    return True


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


def _claim(work: Path, recipe: TinyRecipe) -> None:
    work.mkdir(parents=True, exist_ok=True)
    path = work / "recipe.json"
    if path.exists() and path.read_text(encoding="utf-8") != recipe.fingerprint():
        raise ConfigError(
            f"{work} holds the build of another recipe (see {path}). Give another folder for the work, or delete it."
        )
    write_atomic(path, recipe.fingerprint())


def _begin(work: Path, recipe: TinyRecipe) -> tuple[Policy, Learner[LossInputs], int, list[float]]:
    """The policy, its learner, the step reached and the losses so far: new, or from the last checkpoint."""
    found = latest_checkpoint(work)
    if found is None:
        tokenizer = tiny_tokenizer()
        end, padding = (tokenizer.get_vocab()[name] for name in (END, PADDING))
        config = tiny_config(len(tokenizer), eos_token_id=end, pad_token_id=padding)
        policy = Policy(tiny_model(config, recipe.seed), tokenizer, "tiny")
    else:
        policy = load_policy(str(found.part_directory("policy")))
    limit_threads(policy)
    learner = Learner(
        LogprobModel(policy.model),
        loss=CrossEntropyLoss(),
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        total_steps=recipe.steps,
        token_budget=8192,
        bf16=True,
        optimizer=MuonAdamW,
    )
    if found is None:
        return policy, learner, 0, []
    found.restore("policy", learner)
    losses = found.position["losses"]
    return policy, learner, found.step, [float(loss) for loss in losses] if isinstance(losses, list) else []


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
