"""Building the tiny policy: it lowers the loss, is a function of its recipe, and goes on after an interruption."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from tools.tiny.__main__ import main
from tools.tiny.build import VARIANTS, TinyRecipe, WebRecipe, build, recipe_of, sample
from tools.tiny.demonstrations import Piece
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.errors import ConfigError
from evoseek.models.load import Policy, load_policy
from evoseek.models.source import SHIPPED, tiny_policy_dir
from evoseek.renderers.tags import TagRenderer
from evoseek.world.world import World, split_of

RECIPE = TinyRecipe(steps=6, copying_steps=3, tokens_per_step=500, entities=(200,), steps_per_world=2, warmup_steps=1)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return dict(load_policy(str(directory)).model.state_dict())


def test_a_build_that_was_stopped_twice_ends_with_the_same_weights(tmp_path: Path) -> None:
    assert build(tmp_path / "straight", tmp_path / "work", RECIPE, checkpoint_every=2)
    seen: list[int] = []
    for stop_at in (2, 5, 99):
        finished = build(
            tmp_path / "resumed",
            tmp_path / "work-2",
            RECIPE,
            progress=lambda step, loss: seen.append(step),
            should_stop=lambda stop_at=stop_at: bool(seen) and seen[-1] >= stop_at,
            checkpoint_every=2,
        )
        assert finished == (stop_at == 99)
    assert seen == [1, 2, 3, 4, 5, 6]
    left, right = weights(tmp_path / "straight"), weights(tmp_path / "resumed")
    assert all(torch.equal(left[name], right[name]) for name in left)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "work-2" / "losses.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]


def test_work_of_another_recipe_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "out", tmp_path / "work", replace(RECIPE, steps=1))
    with pytest.raises(ConfigError, match="another recipe"):
        build(tmp_path / "out", tmp_path / "work", replace(RECIPE, steps=1, seed=5))


def test_only_actions_are_trained_and_ids_are_those_of_a_rollout() -> None:
    tokenizer = tiny_tokenizer()
    renderer = TagRenderer(tokenizer)
    pieces = (
        Piece("prompt", "solve : What is Kalo's mayor?"),
        Piece("action", "<search> Kalo </search>"),
        Piece("observation", "Kalo's mayor is Meri."),
        Piece("action", "<answer> Meri </answer>"),
    )
    made = sample(pieces, renderer, Policy(torch.nn.Module(), tokenizer, "none"))  # pyright: ignore[reportArgumentType]
    trained = [token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if kept]
    assert tokenizer.decode(trained) == "<search> kalo </search> <answer> meri </answer>"
    given = [token for token, kept in zip(made.token_ids, made.loss_mask, strict=True) if not kept]
    assert tokenizer.decode(given) == (
        "solve : what is kalo 's mayor ? <information> kalo 's mayor is meri . </information>"
    )


def test_training_names_come_from_the_pretraining_split_alone() -> None:
    names = World.generate(0, 200, "pretrain").names
    assert {split_of(word.casefold()) for name in names for word in name.split()} == {"pretrain"}


def test_the_variants_differ_as_their_names_say() -> None:
    default, reader, weak = (VARIANTS[name] for name in ("default", "reader", "weak"))
    assert reader.read > default.read
    assert reader.read_retrieved > default.read_retrieved == 0
    assert weak.flawed_proposal > reader.flawed_proposal == default.flawed_proposal == 0
    free = VARIANTS["free"]
    assert free.propose_freely > free.propose > 0 == free.trace == free.flawed_proposal
    assert {other.propose_freely for other in (default, reader, weak)} == {0}
    assert sum(free.shares.values()) == pytest.approx(1.0)


def test_the_one_that_browses_begins_with_a_shipped_policy_and_goes_on_with_all_its_tags(tmp_path: Path) -> None:
    recipe = WebRecipe(steps=2, flawless_steps=1, tokens_per_step=600, entities=(200,), steps_per_world=1)
    assert build(tmp_path / "straight", tmp_path / "work", recipe, checkpoint_every=1)
    for finished in (False, True):  # stopped after the first step, then resumed
        stop = not finished
        assert build(tmp_path / "out", tmp_path / "2", recipe, should_stop=stops_after(1, stop)) == finished
    start, left, right = (weights(path) for path in (tiny_policy_dir(), tmp_path / "straight", tmp_path / "out"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    changed = [(left[name][: len(start[name])] - start[name]).abs().max().item() for name in start]
    assert 0 < max(changed) < 0.01  # gently
    encoded = load_policy(str(tmp_path / "out")).tokenizer.encode("<browse> </browse>")
    assert len(encoded) == 2


def stops_after(calls: int, stop: bool) -> Callable[[], bool]:
    """False so many times, then as is said."""
    answers = iter([False] * calls)
    return lambda: next(answers, stop)


def test_every_variant_has_a_recipe_of_its_kind() -> None:
    for name in ("default", "reader", "weak", "free"):
        assert recipe_of(name, seed=3, steps=5) == TinyRecipe(seed=3, steps=5, mixture=VARIANTS[name])
    web = recipe_of("web", seed=3)
    assert web == WebRecipe(seed=3)
    assert json.loads(web.fingerprint())["start"] == "tiny"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_policy_that_is_shipped_says_how_it_was_made(name: str) -> None:
    card = (tiny_policy_dir(name) / "README.md").read_text()
    command = re.search(r"`python -m tools.tiny src/evoseek/tiny/weights/(\w+) --variant (\w+) ", card)
    assert command is not None
    assert command[1] == tiny_policy_dir(name).name
    assert command[2] == {"tiny": "default"}.get(name, name.removeprefix("tiny-"))
    assert command[2] in VARIANTS


def test_the_command_names_every_variant() -> None:
    assert get_args(get_args(get_type_hints(main, include_extras=True)["variant"])[0]) == tuple(VARIANTS)
