"""The skills of a tiny policy, measured on a world that it has not seen and judged by the world's oracle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.models.load import Policy
from evoseek.protocols import Environment, Tool
from evoseek.renderers.tags import TagRenderer, tag_calls
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.run import run_trajectory
from evoseek.rollout.tools import SearchTool
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.search.lexical import LexicalIndex
from evoseek.text.normalization import exact_match
from evoseek.types import Message, Question, Trajectory
from evoseek.world.site import Site
from evoseek.world.world import World
from tools.tiny.build import PASSAGES_SHOWN, world_index
from tools.tiny.demonstrations import DemonstrationKind, DemonstrationShares, Demonstrator, solve_prompt
from tools.tiny.site_web import SiteWeb
from tools.tiny.web_demonstrations import HOPS, web_tools

ENTITIES = 400
SLOTS = 128
LIMITS = Limits(max_turns=6, max_tokens_per_turn=160, max_total_tokens=1600)
WEB_LIMITS = replace(LIMITS, max_turns=8)

SuccessTest = Callable[[World, Trajectory], bool]


@dataclass(frozen=True, slots=True)
class Skill:
    """Successes of n tries, by hops (or searches, for `trace`) asked for; 0: none."""

    name: str
    temperature: float
    tries: Mapping[int, int]
    successes: Mapping[int, int]

    def share(self, *hops: int) -> float:
        """Share of successes over these hops (all of them if none is named)."""
        chosen = hops or tuple(self.tries)
        return sum(self.successes[n] for n in chosen) / max(1, sum(self.tries[n] for n in chosen))


class TaskEnv:
    """An `Environment` whose questions are whole prompts."""

    def __init__(self, role: str, tools: Sequence[Tool]) -> None:
        self._role = role
        self._tools = {tool.name: tool for tool in tools}

    @property
    def role(self) -> str:
        """Which skill is measured."""
        return self._role

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""
        return self._tools

    def messages(self, question: Question) -> list[Message]:
        """The question's text as it is."""
        return [Message("user", question.text)]

    def malformed(self, problem: str) -> str:
        """What the tiny prompts say after a malformed turn; a skill is measured up to the first of them."""
        return load_prompts("tiny").malformed(problem, role=self._role, tools=self._tools, format="tags")


def measure_skills(
    policy: Policy, *, seed: int, tries: int = 200, temperatures: Sequence[float] = (0.0, 0.7, 1.0)
) -> list[Skill]:
    """Every skill at every temperature, on a world of the training split (no pretraining name occurs in it)."""
    world = World.generate(seed, ENTITIES, "train")
    sampler = TorchSampler(policy, slots=SLOTS, max_length=LIMITS.max_total_tokens)
    with TemporaryDirectory() as folder:
        index = world_index(world, Path(folder) / "index")
        template = load_prompts("tiny")["observation"]
        tools = [SearchTool(index, PASSAGES_SHOWN, template=template)]
        tasks = _tasks(world, index, seed, tries)

        async def all_of_them() -> list[Skill]:
            """Measure them concurrently: a round of the sampler costs about the same for one rollout as for many."""
            return await asyncio.gather(
                *(
                    _measure(name, questions, world, judge, TaskEnv(name, tools), policy, sampler, temperature)
                    for temperature in temperatures
                    for name, (questions, judge) in tasks.items()
                )
            )

        return asyncio.run(all_of_them())


def measure_browsing(
    policy: Policy, *, seed: int, tries: int = 200, temperatures: Sequence[float] = (0.0, 0.7, 1.0)
) -> list[Skill]:
    """`browse`, right answers with the tools of the web, and `browse, pages`, rollouts in which a page is opened, at
    every temperature, on the site of a world of the training split."""
    world = World.generate(seed, ENTITIES, "train")
    site = Site(world, seed)
    sampler = TorchSampler(policy, slots=SLOTS, max_length=WEB_LIMITS.max_total_tokens)
    questions = world.questions(tries, seed=seed, hops=HOPS)
    with TemporaryDirectory() as folder:
        index = LexicalIndex.build(Path(folder) / "index", site.passages())
        env = SolverEnv(web_tools(SiteWeb(site, index)), load_prompts("tiny"), prompt="solver_web")

        async def all_of_them() -> list[Skill]:
            skills: list[Skill] = []
            for temperature in temperatures:
                found = await _roll_out("browse", questions, env, policy, sampler, WEB_LIMITS, temperature)
                skills.append(_count("browse", temperature, found, partial(_answers, world)))
                skills.append(_count("browse, pages", temperature, found, _opens))
            return skills

        return asyncio.run(all_of_them())


def _opens(trajectory: Trajectory) -> bool:
    """Whether a page was read, not only asked for."""
    return any(result.call.name == "browse" and result.passages for result in trajectory.tool_results)


def _tasks(world: World, index: LexicalIndex, seed: int, tries: int) -> dict[str, tuple[list[Question], SuccessTest]]:
    rng = random.Random(f"skills/{seed}")
    writer = Demonstrator(
        world, lambda query: index.find(query, PASSAGES_SHOWN), DemonstrationShares(other_phrasing=0.0), rng
    )
    return {
        "solve": (_solving(world, seed, tries, phrasing=0), _answers),
        "solve, second phrasing": (_solving(world, seed, tries, phrasing=1), _answers),
        "propose": (_prompts(writer, "propose", tries), _proposes),
        "trace": (_prompts(writer, "trace", tries), _proposes),
        "read": (_prompts(writer, "read", tries), _answers),
        "propose freely": (_prompts(writer, "propose_freely", tries), _proposes),
    }


def _solving(world: World, seed: int, tries: int, *, phrasing: int) -> list[Question]:
    asked = world.questions(tries, seed=seed, phrasing=phrasing)
    return [Question(q.id, solve_prompt(q.text), q.golden_answers, q.metadata) for q in asked]


def _prompts(writer: Demonstrator, kind: DemonstrationKind, tries: int) -> list[Question]:
    """Prompts of demonstrations; `golden_answers` holds what the demonstration answers."""
    questions: list[Question] = []
    for number in range(tries):
        shown = writer.draw(kind)
        answer = shown[-1].text.split("<answer> ")[1].removesuffix(" </answer>")
        words = shown[0].text.split()
        hops = int(words[1]) if words[0] == "propose" and words[1].isdigit() else 0 if kind == "propose_freely" else 1
        questions.append(Question(f"{kind}-{number}", shown[0].text, (answer,), {"hops": hops}))
    return questions


def _answers(world: World, trajectory: Trajectory) -> bool:
    return exact_match(trajectory.answer or "", trajectory.question.golden_answers) == 1.0


def _proposes(world: World, trajectory: Trajectory) -> bool:
    """Valid: answerable, with the hops that were asked for (if any were), by the answer that the proposer gives; for
    `trace` that is the one it was given."""
    asked = trajectory.actions[-1].question if trajectory.actions else None
    if asked is None or trajectory.answer is None:
        return False
    truth = world.oracle(asked)
    if truth is None or trajectory.question.metadata["hops"] not in (0, truth.hops):
        return False
    wanted = [truth.answer]
    given_right = trajectory.role != "trace" or exact_match(trajectory.question.golden_answers[0], wanted) == 1.0
    return given_right and exact_match(trajectory.answer, wanted) == 1.0


async def _measure(
    name: str,
    questions: Sequence[Question],
    world: World,
    judge: SuccessTest,
    env: TaskEnv,
    policy: Policy,
    sampler: TorchSampler,
    temperature: float,
) -> Skill:
    trajectories = await _roll_out(name, questions, env, policy, sampler, LIMITS, temperature)
    return _count(name, temperature, trajectories, partial(judge, world))


async def _roll_out(
    name: str,
    questions: Sequence[Question],
    env: Environment,
    policy: Policy,
    sampler: TorchSampler,
    limits: Limits,
    temperature: float,
) -> list[Trajectory]:
    renderer = TagRenderer(policy.tokenizer, tag_calls([tool.schema for tool in env.tools.values()]))
    return await asyncio.gather(
        *(
            run_trajectory(
                question,
                env=env,
                renderer=renderer,
                sampler=sampler,
                limits=limits,
                trajectory_id=f"{name}/{temperature}/{question.id}",
                temperature=temperature,
                seed=0,
            )
            for question in questions
        )
    )


def _count(
    name: str, temperature: float, trajectories: Sequence[Trajectory], succeeds: Callable[[Trajectory], bool]
) -> Skill:
    tries: dict[int, int] = {}
    successes: dict[int, int] = {}
    for trajectory in trajectories:
        hops = int(str(trajectory.question.metadata["hops"]))
        tries[hops] = tries.get(hops, 0) + 1
        successes[hops] = successes.get(hops, 0) + succeeds(trajectory)
    return Skill(name, temperature, dict(sorted(tries.items())), dict(sorted(successes.items())))
