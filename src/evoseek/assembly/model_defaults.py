"""Settings that depend on the model: defaults for all models but the policies in the package.

Values set by the user, a config file or the system stay. The other defaults suit a policy of under a million
parameters; a larger model gets these:

    policy.device                 the CUDA device, if there is one, or else the CPU
    policy.dtype                  bfloat16 on an accelerator that has it and a CPU with AMX or AVX-512 BF16; otherwise
                                  float32, as for several processes (they share the weights in nothing else) and, on a
                                  CPU, below 20 million parameters
    learner.bf16                  on an accelerator
    learner.learning_rate         all weights: 1.5e-5 below 0.3 billion parameters (measured: SmolLM2-135M on Wikipedia,
                                  GRPO; with 3e-5 one of two seeds collapsed); 1e-6 from 2.5 billion (published for 3B
                                  and 7B: Search-R1, arXiv 2503.09516; Dr. Zero, 2601.07055; Search Self-play,
                                  2510.18821); in between steps of a factor of two or three. For demonstrations ten
                                  times that, at most 1e-4 (measured there, too). An adapter: ten times all that
                                  (thinkingmachines.ai/blog/lora)
    critic.learning_rate          ten times the all-weights rate (published: 1e-5 beside 1e-6; ZeroSearch, 2505.04588)
    rollout.max_tokens_per_turn   500, as in Search-R1; on a CPU, which writes some hundred tokens a second, 128
    rollout.max_total_tokens      4096, as in Search-R1; on a CPU 2048; never more than the model was made for
    rollout.max_tool_calls        4, as in Search-R1
    rollout.max_malformed         2: Search-R1 gives a notice and continues, too
    rollout.final_answer          one last turn to answer, as in Search-R1
    rollout.max_turns             as many as calls and malformed turns, the one too many, and the last
    proposer.max_...              in self-play, as for rollout
    filters.rules                 in self-play, full: the rules about wording, too
    questions.per_step            (Search Self-play: selfplay.proposals_per_step) 64 on an accelerator, 4 on a
                                  CPU (measured: a step of minutes)
    learner.token_budget          8192 on an accelerator, 2048 on a CPU
    sampler.slots                 number of whole rollouts whose keys and values fit a quarter of the remaining memory
                                  beside the rest (assembly.memory_needs; activations, whose micro-batches adapt, not
                                  counted); a power of two from 1 to 64, not more than a step has rollouts. An agent
                                  that only answers: all that answer concurrently, if half of that memory holds them

Training by a service counts as on an accelerator, without settings of this machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evoseek.assembly.memory_needs import memory_needs, rollout_bytes, step_rollouts, training_needs
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import find
from evoseek.config.sections import is_given, lookup, with_setting
from evoseek.credit import needs_critic
from evoseek.models.machine import Machine
from evoseek.models.shape import ModelShape, read_config, shape_of
from evoseek.models.source import origin
from evoseek.storage.files import expanded
from evoseek.storage.runs import RunDirectory, flatten

_RATES = ((0.3e9, 1.5e-5), (0.8e9, 7e-6), (2.5e9, 3e-6))  # below these numbers of parameters
_LOWEST_RATE = 1e-6
_SUPERVISED_RATE, _HIGHEST_RATE = 10.0, 1e-4  # times the rate of reinforcement learning, and the maximum
_ADAPTER_RATE = 10.0  # times the rate of all weights
_FEWEST_BFLOAT16 = 20_000_000  # parameters; in smaller models matrix products do not dominate
_FIRST = "search_first"
_FEWEST_THAT_SEARCH = 3e9  # parameters of an untrained model that may search by itself
_MOST_SLOTS = 64
_SHARE, _ANSWERING_SHARE = 0.25, 0.5  # of free memory, for keys and values
_LATER = ("activations", "keys and values", "freed memory")  # what uses the remaining memory


def apply_model_defaults(
    settings: TrainingSettings,
    find_machine: Callable[[str | None], Machine],
    saved: Mapping[str, object] | None = None,
    *,
    shown: Callable[[str], bool] = lambda _: True,
    answers: int = 0,
) -> tuple[TrainingSettings, str]:
    """Choose settings that were not given to suit the model; return them, and a text of the choices that are `shown`.

    `saved` are the resolved settings of a resumed run, whose choices are repeated. With `answers` the policy is not
    trained, but answers that many questions concurrently. For a policy of the package, or another one with the same
    prompts, nothing changes and the text is empty.
    """
    description = read_config(settings.policy.model)
    if not description or description.get("evoseek_prompts") == "tiny":
        return settings, ""
    machine = find_machine(settings.policy.device if is_given(settings, "policy.device") else None)
    choice = _Choice(settings, flatten(saved or {}))
    shape = shape_of(description)
    _choose(choice, machine, shape, answers)
    return choice.settings, _words(choice, machine, shape, shown)


def follow_endpoint(settings: TrainingSettings) -> TrainingSettings:
    """Choose the limits of rollouts for a chat model; its size is unknown."""
    choice = _Choice(settings, {})
    _choose_bounds(choice)
    return choice.settings


def search_first(settings: TrainingSettings, states: Callable[[str], bool]) -> TrainingSettings:
    """Let an untrained model, the policy or [answerer], answer after a search for the question, unless another
    environment is stated; `states` tells which settings are. A run's model is asked so if it was trained so, and a
    model with the prompts of the shipped policies is not, nor one that an agent calls. An untrained model of fewer than
    three billion parameters may not search further: it would write calls where it could answer.
    """
    if settings.runs_agent:
        return settings
    model, answerer = settings.policy.model, settings.answerer
    is_chat = bool(answerer.model or answerer.base_url)
    description = {} if is_chat else read_config(model)
    trained = None if is_chat or origin(model) == model else flatten(RunDirectory(expanded(model)).read_config())
    is_tiny = description.get("evoseek_prompts") == "tiny"
    if is_tiny if trained is None else trained.get("environment.name") != _FIRST:
        return settings
    if (states("environment.name") and not settings.environment.opens) or all(
        tool.name != "search" for tool in settings.tools
    ):
        return settings
    shape, chosen = shape_of(description) if description else None, dict[str, object]()
    if trained is not None:
        chosen = {key: trained[key] for key in ("policy.format", "rollout.max_tool_calls") if key in trained}
    elif shape is not None and shape.parameters < _FEWEST_THAT_SEARCH:
        chosen = {"policy.format": "tags", "rollout.max_tool_calls": 0}
    if not states("environment.name"):
        settings = with_setting(settings, "environment.name", _FIRST)
    for key, value in chosen.items():
        settings = settings if states(key) else with_setting(settings, key, value)
    return settings


def learning_rate(parameters: int, *, adapter: bool, supervised: bool = False) -> float:
    """Return the learning rate for a model of this size, for all weights or an adapter, from rewards or
    demonstrations."""
    rate = next((rate for limit, rate in _RATES if parameters < limit), _LOWEST_RATE)
    rate = min(float(f"{rate * _SUPERVISED_RATE:.1e}"), _HIGHEST_RATE) if supervised else rate
    return float(f"{rate * _ADAPTER_RATE:.1e}") if adapter else rate


def slots(settings: TrainingSettings, machine: Machine, shape: ModelShape, answers: int = 0) -> int:
    """Return for how many rollouts keys and values are held; `answers` as in `apply_model_defaults`."""
    number = 1 if answers else machine.processes
    needs = memory_needs(settings, shape, answers=answers) if answers else training_needs(settings, shape, number)
    free = machine.free_bytes // (number if machine.is_cpu else 1)
    left = free - sum(size for name, size in needs.items() if name not in _LATER)
    fit = int((_ANSWERING_SHARE if answers else _SHARE) * left / rollout_bytes(settings, shape))
    if answers:
        return max(1, min(fit, answers))
    most = math.ceil(step_rollouts(settings) / number) or _MOST_SLOTS
    return 1 << (max(1, min(fit, _MOST_SLOTS, most)).bit_length() - 1)


@dataclass(slots=True)
class _Choice:
    """The settings so far, what was `chosen`, and what had been chosen `before` a run was resumed."""

    settings: TrainingSettings
    before: Mapping[str, object]
    chosen: dict[str, object] = field(default_factory=dict[str, object])
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, key: str, value: object, reason: str = "") -> None:
        table, _, name = key.rpartition(".")
        if is_given(self.settings, key) or name not in getattr(type(lookup(self.settings, table)), "model_fields", ()):
            return
        self.chosen[key] = chosen = self.before.get(key, value)
        self.settings = with_setting(self.settings, key, chosen)
        if reason and key not in self.before:
            self.reasons[key] = reason


def _choose(choose: _Choice, machine: Machine, shape: ModelShape | None, answers: int = 0) -> None:
    """Apply the rules in an order in which each may use the results of earlier ones."""
    adapter, settings = choose.settings.adapter_rank > 0, choose.settings
    remote = settings.learner.is_remote
    cpu = machine.is_cpu and not remote
    longest = (shape.longest if shape else None) or 4096
    choose("policy.device", machine.device)
    if not remote:
        choose("policy.dtype", *_dtype(machine, shape))
        choose("learner.bf16", not cpu)
        choose("learner.token_budget", 2048 if cpu else 8192)
    asks = lookup(settings, "questions.per_step") is not None
    choose("questions.per_step" if asks else "selfplay.proposals_per_step", 4 if cpu else 64)
    choose("rollout.max_total_tokens", min(2048 if cpu else 4096, longest))
    _choose_bounds(choose)
    for role in ("rollout", "proposer"):
        choose(f"{role}.max_tokens_per_turn", 128 if cpu else 500)
    choose("proposer.max_turns", choose.settings.rollout.max_turns)
    choose("filters.rules", "full")
    if shape is not None:
        choose(
            "learner.learning_rate", learning_rate(shape.parameters, adapter=adapter, supervised=settings.is_supervised)
        )
        if needs_critic(find("credit", choose.settings.credit.name)):
            choose("critic.learning_rate", learning_rate(shape.parameters, adapter=True))
        choose("sampler.slots", slots(choose.settings, machine, shape, answers))


def _dtype(machine: Machine, shape: ModelShape | None) -> tuple[str, str]:
    if machine.processes > 1:
        return "float32", f"{machine.processes} processes share the weights in it"
    if machine.is_cpu and (shape is None or shape.parameters < _FEWEST_BFLOAT16):
        return "float32", ""
    return ("bfloat16", "") if machine.has_bfloat16 else ("float32", f"{machine.device} has no bfloat16")


def _choose_bounds(choose: _Choice) -> None:
    choose("rollout.max_tool_calls", 4)
    choose("rollout.max_malformed", 2)
    choose("rollout.final_answer", True)
    rollout = choose.settings.rollout
    choose("rollout.max_turns", rollout.max_tool_calls + rollout.max_malformed + 2)


def _words(choice: _Choice, machine: Machine, shape: ModelShape | None, shown: Callable[[str], bool]) -> str:
    lines = [
        f"  {key} = {json.dumps(value)}" + (f"  # {reason}" if (reason := choice.reasons.get(key)) else "")
        for key, value in choice.chosen.items()
        if shown(key)
    ]
    if not lines:
        return ""
    size = (
        f"{shape.parameters / 1e6:,.0f} million parameters"
        if shape
        else "sizes that its config.json does not name, so set learner.learning_rate and sampler.slots yourself"
    )
    why = "are those that the run was begun with" if choice.before else "follow the model"
    free = f" with {machine.free_bytes / 2**30:.1f} GiB free" if machine.is_here else ", which is not on this machine"
    where = f"{machine.device}{free}"
    return "\n".join(
        [f"{choice.settings.policy.model} has {size}; {where}. Settings that were not given {why}:", *lines]
    )
