"""The README of a tiny policy: its skills, its recipe, and the command that built it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

from evoseek.eval.statistics import wilson_interval
from tools.tiny.build import Recipe, WebRecipe
from tools.tiny.skills import Skill

_SKILLS = {
    "solve": "exact match of the answer, by hops of the question",
    "solve, second phrasing": "the same for questions in other words",
    "propose": "valid questions from a passage and a number of hops",
    "propose freely": "valid questions from a passage alone, with any number of hops",
    "trace": "valid questions from an answer and a number of searches",
    "read": "exact match of the answer, from given passages without searching",
}
_WEB_SKILLS = {
    "browse": "exact match of the answer, by hops of the question, searching and browsing a generated site",
    "browse, pages": "the share of those attempts that read a page",
}


def tiny_card(recipe: Recipe, losses: Sequence[float], skills: Sequence[Skill], *, command: str) -> str:
    """The card as Markdown. `losses` has one value a step."""
    web = isinstance(recipe, WebRecipe)
    parts = [
        "# The tiny policy",
        "A decoder of the Llama kind with 0.8M parameters (d = 128, 4 layers, 4 heads, 2 key-value heads) and its own "
        f"tokenizer, trained {_origin(recipe)} reinforcement learning.",
        f"Made by `{command}`.",
        "## What it can do",
        "On a generated world of the training split, whose names it was never trained on. Validity is judged by the "
        "world's oracle: answerable, with as many hops as asked for, by the answer given.",
        *[f"- **{name}**: {meaning}" for name, meaning in (_WEB_SKILLS if web else _SKILLS).items()],
        "",
        _skill_table(skills),
        "## Recipe",
        _table(("setting", "value"), [(name, str(value)) for name, value in asdict(recipe).items()]),
        "## Curve",
        "Mean cross-entropy of the tokens that the policy would write, over the steps up to the one named."
        + ("" if web else f" The first {recipe.copying_steps} steps are copying and reading alone."),
        _table(("step", "loss"), _curve(losses)),
    ]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"


def _origin(recipe: Recipe) -> str:
    if isinstance(recipe, WebRecipe):
        return (
            f"from the policy `{recipe.start}` on demonstrations of searching and browsing sites of generated worlds "
            "of the pretraining split. They mostly answer without having read the page that tells, or stop after the "
            "first hop, so that browsing, and answering over several hops, are left to"
        )
    return (
        "from scratch on demonstrations about generated worlds of the pretraining split. Its solver's demonstrations "
        "mostly stop after the first hop, so that answering over several hops is left to"
    )


def _skill_table(skills: Sequence[Skill]) -> str:
    rows: list[tuple[str, ...]] = []
    for skill in skills:
        tries = sum(skill.tries.values())
        interval = wilson_interval(sum(skill.successes.values()), tries)
        cells = [f"{skill.share(hops):.2f}" if hops in skill.tries else "" for hops in (1, 2, 3, 4)]
        all_of_them = f"{skill.share():.3f} [{interval.low:.3f}, {interval.high:.3f}]"
        rows.append((skill.name, f"{skill.temperature:g}", str(tries), all_of_them, *cells))
    return _table(("skill", "temperature", "n", "all, 95 % interval", "1", "2", "3", "4"), rows)


def _curve(losses: Sequence[float]) -> list[tuple[str, str]]:
    """Means over twelve stretches of like length."""
    borders = [round(len(losses) * part / 12) for part in range(13)]
    stretches = [(start, end) for start, end in pairwise(borders) if end > start]
    return [(str(end), f"{sum(losses[start:end]) / (end - start):.4f}") for start, end in stretches]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
