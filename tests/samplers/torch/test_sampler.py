"""The sampler against plain forward passes of the same model, and what it promises to its callers."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from evoseek.errors import SamplerError
from evoseek.models.load import Policy
from evoseek.protocols import Sampler
from evoseek.samplers.torch.draw import draw_tokens, turn_uniforms
from evoseek.samplers.torch.sampler import SamplerStats, TorchSampler
from evoseek.types import Completion, SampleRequest, StopConditions

VOCABULARY = 96
NO_STOP = StopConditions()
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}


def characters() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character; id 0 is a space."""
    pieces = {chr(32 + number): number for number in range(95)} | {"<unk>": 95}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def policy(kind: str = "qwen2", sharpness: float = 1.0) -> Policy:
    """A small random model; its logits are `sharpness` times further apart."""
    torch.manual_seed(7)
    model: PreTrainedModel = (
        Qwen2ForCausalLM(Qwen2Config(**SIZES)) if kind == "qwen2" else LlamaForCausalLM(LlamaConfig(**SIZES))
    )
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.25 * (sharpness if name.startswith("lm_head") else 1.0))
    return Policy(model.eval(), characters(), kind)


@dataclass
class Rollout:
    """What one scripted trajectory sent and got."""

    name: str
    prompt: list[int]
    turns: list[tuple[int, list[int]]]  # tokens to sample, then the observation's ids
    temperature: float = 1.0
    yields: int = 0  # passes of the event loop that its tool takes
    completions: list[Completion] = field(default_factory=list)
    contexts: list[list[int]] = field(default_factory=list)

    async def run(self, sampler: Sampler, stop: StopConditions = NO_STOP) -> None:
        ids = list(self.prompt)
        for turn, (count, observation) in enumerate(self.turns):
            request = SampleRequest(self.name, turn, tuple(ids), count, self.temperature, stop, seed=3)
            completion = await sampler.sample(request)
            self.contexts.append(list(ids))
            self.completions.append(completion)
            ids += [*completion.token_ids, *observation]
            for _ in range(self.yields):
                await asyncio.sleep(0)
        sampler.release(self.name)


def rollouts(count: int, *, seed: int = 0) -> list[Rollout]:
    """Trajectories of 1-4 turns with prompts, completions and observations of many lengths."""
    rng = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high))]

    return [
        Rollout(
            f"t{number}",
            prompt=ids(1, 30),
            turns=[(rng.randint(1, 12), ids(0, 40)) for _ in range(rng.randint(1, 4))],
            temperature=rng.choice([0.0, 0.7, 1.0, 1.3]),
            yields=rng.choice([0, 0, 3, 9]),
        )
        for number in range(count)
    ]


def play(sampler: TorchSampler, scripts: list[Rollout], stop: StopConditions = NO_STOP) -> list[Rollout]:
    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(script.run(sampler, stop) for script in scripts)), 30)

    asyncio.run(main())
    return scripts


def tokens(scripts: list[Rollout]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in script.completions] for script in scripts]


@torch.no_grad()
def plain_logprobs(model: PreTrainedModel, context: list[int], completion: Completion, temperature: float):
    """Logprobs of a completion by one ordinary forward pass over all ids, without any cache."""
    logits = model(torch.tensor([[*context, *completion.token_ids]])).logits[0].float() / (temperature or 1.0)
    wanted = logits[len(context) - 1 : -1].log_softmax(-1)
    return wanted.gather(1, torch.tensor(completion.token_ids)[:, None]).squeeze(1), wanted


@pytest.mark.filterwarnings("error")  # also by transformers, of arguments that will go
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize(("slots", "prefill_tokens"), [(5, 4096), (64, 4096), (7, 16)])
def test_logprobs_equal_a_plain_forward_pass(kind: str, slots: int, prefill_tokens: int):
    chosen = policy(kind)
    sampler = TorchSampler(chosen, slots=slots, max_length=400, prefill_tokens=prefill_tokens)
    for script in play(sampler, rollouts(40)):
        for context, completion in zip(script.contexts, script.completions, strict=True):
            logprobs, table = plain_logprobs(chosen.model, context, completion, script.temperature)
            assert torch.allclose(torch.tensor(completion.logprobs), logprobs, atol=1e-5, rtol=0)
            if script.temperature == 0:
                assert completion.token_ids == tuple(table.argmax(-1).tolist())


def test_trajectories_that_outnumber_the_slots_are_all_served_and_only_new_tokens_are_computed():
    scripts = rollouts(30)
    sampler = TorchSampler(policy(), slots=4, max_length=400)
    play(sampler, scripts)
    assert all(len(script.completions) == len(script.turns) for script in scripts)
    # Every id of the last context is computed once, except that single tokens count as decoded, not prefilled.
    new = 0
    for script in scripts:
        held = 0
        for context, completion in zip(script.contexts, script.completions, strict=True):
            missing = len(context) - held
            new += missing if missing > 1 else 0
            held = len(context) + len(completion.token_ids) - 1
    assert sampler.stats.prefill_tokens == new
    assert sampler.stats.action_tokens == sum(len(c.token_ids) for s in scripts for c in s.completions)


def group(prompt: list[int], names: str) -> list[Rollout]:
    return [Rollout(name, list(prompt), [(5, [])]) for name in names]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prompt_that_trajectories_share_is_computed_once(dtype: torch.dtype):
    """Two groups of three with prompts of 20 + 20 tokens, of which the first 20 are common to both groups, and one
    stranger of 30. Computed: a prompt of 40 and the stranger; then the second prompt's other 20; and of each of the
    four others its last token. Copied: 2 x 39, 20, 2 x 39."""
    chosen = policy("llama")
    chosen.model.to(dtype)
    start = [number % 90 for number in range(20)]
    first, second = start + [7] * 20, start + [8] * 20
    scripts = [*group(first, "abc"), *group(second, "def"), *group(list(range(30, 60)), "g")]
    sampler = TorchSampler(chosen, slots=8, max_length=100)
    play(sampler, scripts)
    assert sampler.stats.copied_tokens == 39 + 39 + 20 + 39 + 39
    assert sampler.stats.prefill_tokens == 40 + 30 + 20 + 4 * 1
    for script in scripts:
        logprobs, _ = plain_logprobs(chosen.model, script.contexts[0], script.completions[0], 1.0)
        bound = 1e-5 if dtype == torch.float32 else 0.1
        assert torch.allclose(torch.tensor(script.completions[0].logprobs), logprobs, atol=bound, rtol=0)


def test_a_prompt_that_a_trajectory_holds_is_copied_to_a_later_one_but_not_after_new_weights():
    """`a` holds its slot; `b` copies 29 of its 30 tokens; after new weights `c` computes them all."""
    sampler = TorchSampler(policy(), slots=4, max_length=100)
    prompt = list(range(30))

    async def ask(name: str) -> None:
        await sampler.sample(SampleRequest(name, 0, tuple(prompt), 2, 1.0, NO_STOP, seed=0))

    async def main() -> list[int]:
        copied: list[int] = []
        for name in "ab":
            await ask(name)
            copied.append(sampler.stats.copied_tokens)
        sampler.update_weights(1)
        await ask("c")
        return [*copied, sampler.stats.copied_tokens]

    assert asyncio.run(main()) == [0, 29, 29]


def test_the_results_of_equal_searches_are_computed_once():
    """Greedily `a` and `b` write the same two tokens after a prompt of 30, and then are shown the same 20. Turn 0: `a`
    computes 30, `b` copies 29. Turn 1: `a`, which holds all but its last token, computes 21; of these `b` copies 20.
    `c` is shown 8 of them and 12 others, too few in common: it computes what it lacks."""
    chosen = policy()
    sampler, prompt, shown = TorchSampler(chosen, slots=4, max_length=100), list(range(30)), [40 + n for n in range(20)]

    async def ask(name: str, turn: int, ids: list[int]) -> Completion:
        return await sampler.sample(SampleRequest(name, turn, tuple(ids), 2, 0.0, NO_STOP, seed=0))

    async def main() -> list[Completion]:
        for name in "abc":
            written = list((await ask(name, 0, prompt)).token_ids)
        sampler.stats = SamplerStats()
        context = prompt + written + shown
        return [
            await ask("a", 1, context),
            await ask("b", 1, context),
            await ask("c", 1, prompt + written + shown[:8] + [70] * 12),
        ]

    first, second, other = asyncio.run(main())
    assert sampler.stats.prefill_tokens == 21 + 1 + 21
    assert sampler.stats.copied_tokens == 20
    assert second.token_ids == first.token_ids
    assert second.logprobs == pytest.approx(first.logprobs, abs=1e-5)
    assert len(other.token_ids) == 2


def test_the_same_requests_give_the_same_bits():
    first, second = (
        [script.completions for script in play(TorchSampler(policy(), slots=6, max_length=400), rollouts(25))]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("slots", [6, 25])
def test_in_lockstep_the_bits_do_not_depend_on_how_long_tools_take(slots: int):
    def completions(seed: int, *, lockstep: bool) -> list[list[Completion]]:
        rng, scripts = random.Random(seed), rollouts(25)
        for script in scripts:
            script.yields = rng.choice([0, 1, 5, 40])
        sampler = TorchSampler(policy(), slots=slots, max_length=400, lockstep=lockstep)
        return [script.completions for script in play(sampler, scripts)]

    first = completions(0, lockstep=True)
    assert all(completions(seed, lockstep=True) == first for seed in (1, 2))
    assert completions(1, lockstep=False) != completions(0, lockstep=False)  # by rounding, as their batches differ


def test_tokens_depend_on_neither_slots_nor_neighbours():
    """A token is a function of seed, trajectory, turn and the model's distribution: the batch moves only rounding."""
    together = tokens(play(TorchSampler(policy(), slots=20, max_length=400), rollouts(20)))
    few = tokens(play(TorchSampler(policy(), slots=3, max_length=400, prefill_tokens=24), rollouts(20)))
    alone = [tokens(play(TorchSampler(policy(), slots=1, max_length=400), [script]))[0] for script in rollouts(20)]
    assert together == few == alone


def test_each_token_is_the_one_its_uniform_points_at():
    chosen = policy()
    for script in play(TorchSampler(chosen, slots=4, max_length=400), rollouts(8)):
        for turn, (context, completion) in enumerate(zip(script.contexts, script.completions, strict=True)):
            if script.temperature == 0:
                continue
            _, table = plain_logprobs(chosen.model, context, completion, script.temperature)
            above = table.double().exp().cumsum(-1)
            uniforms = turn_uniforms(3, script.name, turn, len(completion.token_ids))
            for row, token, uniform in zip(above, completion.token_ids, uniforms, strict=True):
                assert (row[token - 1] if token else 0.0) - 1e-5 <= uniform <= row[token] + 1e-5


def test_uniforms_reach_the_draw_unrounded(monkeypatch: pytest.MonkeyPatch):
    drawn_at: list[float] = []

    def draw(logits: torch.Tensor, temperatures: torch.Tensor, uniforms: torch.Tensor, given: list[int | None]):
        drawn_at.extend(uniforms.tolist())
        return draw_tokens(logits, temperatures, uniforms, given)

    monkeypatch.setattr("evoseek.samplers.torch.sampler.draw_tokens", draw)
    play(TorchSampler(policy(), slots=1, max_length=64), [Rollout("a", [1, 2, 3], [(5, [])])])
    assert drawn_at == turn_uniforms(3, "a", 0, 5)


def test_a_turn_begins_as_it_has_to_with_the_policys_own_logprobs():
    """Asked again for a turn with another beginning, it forgets what it wrote from where the two differ."""
    chosen, context = policy(), [5, 6, 7]

    async def sample(sampler: TorchSampler) -> list[Completion]:
        request = SampleRequest("a", 0, tuple(context), 8, 0.7, NO_STOP, 3)
        first = await sampler.sample(request)
        begins = (*first.token_ids[:2], 40, 41)
        return [first, await sampler.sample(replace(request, begins=begins))]

    first, second = asyncio.run(sample(TorchSampler(chosen, slots=2, max_length=64)))
    assert second.token_ids[:4] == (*first.token_ids[:2], 40, 41)
    assert len(second.token_ids) == 8
    for completion in (first, second):
        logprobs, _ = plain_logprobs(chosen.model, context, completion, 0.7)
        assert completion.logprobs == pytest.approx(logprobs, abs=1e-4)


def test_a_turn_that_is_begun_anew_draws_other_numbers():
    """Whether it is depends on what was drawn, so that the same numbers again would not be independent of it."""

    async def sample() -> tuple[tuple[int, ...], tuple[int, ...]]:
        sampler = TorchSampler(policy(), slots=2, max_length=64)
        request = SampleRequest("a", 0, (5, 6, 7), 24, 1.0, NO_STOP, 3)
        first = (await sampler.sample(request)).token_ids
        return first, (await sampler.sample(replace(request, begins=first[:2]))).token_ids

    first, second = asyncio.run(sample())
    assert second[:2] == first[:2]
    assert second != first


def test_another_seed_trajectory_or_turn_gives_other_tokens():
    async def sample(name: str, turn: int, seed: int) -> tuple[int, ...]:
        request = SampleRequest(name, turn, (1, 2, 3), 24, 1.0, NO_STOP, seed)
        return (await TorchSampler(policy(), slots=1, max_length=64).sample(request)).token_ids

    streams = [("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1)]
    assert len({asyncio.run(sample(*stream)) for stream in streams}) == 4


def test_temperature_sharpens_and_the_logprob_is_that_of_the_tempered_distribution():
    chosen = policy()
    script = play(TorchSampler(chosen, slots=1, max_length=64), [Rollout("t", [5, 6], [(20, [])], temperature=0.3)])[0]
    tempered, _ = plain_logprobs(chosen.model, [5, 6], script.completions[0], 0.3)
    plain, _ = plain_logprobs(chosen.model, [5, 6], script.completions[0], 1.0)
    assert torch.allclose(torch.tensor(script.completions[0].logprobs), tempered, atol=1e-5, rtol=0)
    assert tempered.sum() > plain.sum() + 1


class Spelling(torch.nn.Module):
    """Makes a model write a text over and over: after any id of the text's characters it wants the next one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = [ord(character) - 32 for character in text]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        position = hidden[..., 0].round().long() % len(self.text)
        return 100.0 * torch.nn.functional.one_hot(torch.tensor(self.text)[position], VOCABULARY).float()


def speller(text: str) -> Policy:
    """A policy that writes `text` in a loop: its hidden state is its position, its head the text."""
    chosen = policy()

    def positions(module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor], output: object) -> object:
        output.last_hidden_state = kwargs["position_ids"][..., None].float().repeat(1, 1, 32)  # type: ignore[attr-defined]
        return output

    chosen.model.base_model.register_forward_hook(positions, with_kwargs=True)
    chosen.model.lm_head = Spelling(text)
    return chosen


def written(chosen: Policy, stop: StopConditions, count: int = 40) -> tuple[str, str]:
    script = play(TorchSampler(chosen, slots=2, max_length=80), [Rollout("t", [0], [(count, [])])], stop)[0]
    return chosen.tokenizer.decode(list(script.completions[0].token_ids)), script.completions[0].finish_reason


def test_a_stop_string_over_many_tokens_ends_the_completion_and_stays_in_it():
    chosen = speller("a > b </search> c </answer> ")
    assert written(chosen, StopConditions(strings=("</answer>", "</search>"))) == ("a > b </search>", "stop")
    assert written(chosen, StopConditions(strings=("</answer>",))) == ("a > b </search> c </answer>", "stop")
    assert written(chosen, StopConditions(strings=("b ",))) == ("a > b ", "stop")
    assert written(chosen, StopConditions(strings=("none",)), 10) == ("a > b </se", "length")


def test_a_stop_string_is_sought_in_the_completion_alone():
    """The context ends with the first half of the stop string; the second half does not stop."""
    chosen = speller("search> </search>")
    assert written(chosen, StopConditions(strings=("</search>",)))[0] == "search> </search>"


def test_stop_ids_and_the_models_own_end_stop():
    chosen = speller("abcdef")
    identifier = ord("d") - 32
    assert written(chosen, StopConditions(token_ids=(identifier,))) == ("abcd", "stop")
    chosen.model.generation_config.eos_token_id = [identifier]
    assert written(chosen, NO_STOP) == ("abcd", "stop")


def test_a_context_that_was_changed_is_computed_from_where_it_differs():
    chosen = policy()
    sampler = TorchSampler(chosen, slots=2, max_length=200)

    async def main() -> None:
        for turn, context in enumerate([(1, 2, 3, 4, 5, 6), (1, 2, 9, 9), (1, 2, 9), (7,)]):
            completion = await sampler.sample(SampleRequest("t", turn, context, 6, 1.0, NO_STOP, 0))
            logprobs, _ = plain_logprobs(chosen.model, list(context), completion, 1.0)
            assert torch.allclose(torch.tensor(completion.logprobs), logprobs, atol=1e-5, rtol=0)

    asyncio.run(main())


def test_new_weights_forget_what_old_weights_computed_also_in_the_middle_of_a_turn():
    chosen = policy()
    sampler = TorchSampler(chosen, slots=3, max_length=200)
    scripts = rollouts(6, seed=5)

    async def learn() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sampler.stats.action_tokens > 0
        with torch.no_grad():
            chosen.model.lm_head.weight.mul_(1.0)
            chosen.model.model.layers[0].self_attn.v_proj.weight.mul_(0.5)
        sampler.update_weights(sampler.policy_version + 1)

    async def main() -> None:
        await asyncio.gather(learn(), *(script.run(sampler) for script in scripts))

    asyncio.run(main())
    versions = {completion.policy_version for script in scripts for completion in script.completions}
    assert versions == {0, 1}
    for script in scripts:
        for context, completion in zip(script.contexts, script.completions, strict=True):
            if completion.policy_version == 1:
                logprobs, _ = plain_logprobs(chosen.model, context, completion, script.temperature)
                assert torch.allclose(torch.tensor(completion.logprobs), logprobs, atol=1e-5, rtol=0)


def one_turn(sampler: TorchSampler) -> Completion:
    return asyncio.run(sampler.sample(SampleRequest("a", 0, (1, 7, 9), 8, 0.0, NO_STOP, 0)))


def test_weights_that_are_given_replace_the_model_s_and_completions_say_their_version():
    chosen, other = policy(), policy()
    with torch.no_grad():
        other.model.model.layers[0].self_attn.v_proj.weight.mul_(0.5)
    expected = one_turn(TorchSampler(other, slots=1, max_length=200))
    sampler = TorchSampler(chosen, slots=1, max_length=200)
    before = one_turn(sampler)
    sampler.update_weights(7, other.model.state_dict())
    after = one_turn(sampler)
    assert (before.policy_version, after.policy_version, sampler.policy_version) == (0, 7, 7)
    assert (after.token_ids, after.logprobs) == (expected.token_ids, expected.logprobs)
    assert after.logprobs != before.logprobs
    assert torch.equal(chosen.model.lm_head.weight, other.model.lm_head.weight)


@pytest.mark.parametrize("wrong", [{}, {"lm_head.weight": torch.zeros(2, 2)}], ids=["none", "shape"])
def test_weights_of_another_model_are_refused_and_the_version_stays(wrong: dict[str, torch.Tensor]):
    sampler = TorchSampler(policy(), slots=1, max_length=200)
    sampler.update_weights(3)
    with pytest.raises(SamplerError, match="the weights of version 4 do not fit the model"):
        sampler.update_weights(4, wrong)
    assert sampler.policy_version == 3


def test_new_weights_free_the_slots_of_trajectories_between_two_turns():
    """The next turn is computed anew from its ids, so nothing of the old weights is in it."""
    sampler = TorchSampler(policy(), slots=1, max_length=200)

    async def main() -> int:
        first = await sampler.sample(SampleRequest("a", 0, (1, 7, 9), 4, 1.0, NO_STOP, 0))
        sampler.update_weights(1)
        prefilled = sampler.stats.prefill_tokens
        await sampler.sample(SampleRequest("a", 1, (1, 7, 9, *first.token_ids, 5), 4, 1.0, NO_STOP, 0))
        return sampler.stats.prefill_tokens - prefilled

    assert asyncio.run(main()) == 8


def test_a_cancelled_caller_frees_its_slot_at_once():
    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=400)
        long = asyncio.create_task(sampler.sample(SampleRequest("a", 0, (1,), 300, 1.0, NO_STOP, 0)))
        queued = asyncio.create_task(sampler.sample(SampleRequest("b", 0, (1,), 5, 1.0, NO_STOP, 0)))
        waiting = asyncio.create_task(sampler.sample(SampleRequest("c", 0, (1,), 5, 1.0, NO_STOP, 0)))
        for _ in range(6):
            await asyncio.sleep(0)
        assert not long.done()
        queued.cancel()
        long.cancel()
        assert len((await asyncio.wait_for(waiting, 5)).token_ids) == 5
        with pytest.raises(asyncio.CancelledError):
            await long
        assert sampler.stats.action_tokens < 20
        # the same trajectory may come again
        sampler.release("c")
        assert len((await sampler.sample(SampleRequest("a", 0, (1,), 5, 1.0, NO_STOP, 0))).token_ids) == 5

    asyncio.run(main())


def test_a_cancelled_turn_that_waits_for_the_others_is_forgotten():
    """Of a trajectory that has a slot, while another one's tool works."""

    async def main() -> None:
        sampler = TorchSampler(policy(), slots=2, max_length=64, lockstep=True)
        requests = [SampleRequest(name, 0, (1,), 4, 1.0, NO_STOP, 0) for name in "ab"]
        first, other = await asyncio.gather(*map(sampler.sample, requests))
        waiting = asyncio.create_task(sampler.sample(SampleRequest("a", 1, (1, *first.token_ids), 4, 1.0, NO_STOP, 0)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        second = SampleRequest("b", 1, (1, *other.token_ids), 8, 1.0, NO_STOP, 0)
        assert len((await asyncio.wait_for(sampler.sample(second), 5)).token_ids) == 8
        sampler.release("b")
        assert sampler.stats.action_tokens == 4 + 4 + 8

    asyncio.run(main())


def test_a_deadline_ends_a_turn():
    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=512)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await sampler.sample(SampleRequest("a", 0, (1,), 500, 1.0, NO_STOP, 0))
        assert len((await sampler.sample(SampleRequest("b", 0, (1,), 2, 1.0, NO_STOP, 0))).token_ids) == 2

    asyncio.run(main())


def test_a_slot_that_is_released_later_goes_to_who_waits():
    """All slots wait for tools and the sampler is idle; releasing one wakes it."""

    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=64)
        await sampler.sample(SampleRequest("a", 0, (1,), 2, 1.0, NO_STOP, 0))
        waiting = asyncio.create_task(sampler.sample(SampleRequest("b", 0, (1,), 2, 1.0, NO_STOP, 0)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        sampler.release("a")
        sampler.release("never seen")
        assert (await asyncio.wait_for(waiting, 5)).finish_reason == "length"

    asyncio.run(main())


def test_releasing_a_trajectory_that_is_being_sampled_is_an_error_for_its_caller():
    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=400)
        tasks = [
            asyncio.create_task(sampler.sample(SampleRequest(name, 0, (1,), 300, 1.0, NO_STOP, 0))) for name in "ab"
        ]
        await asyncio.sleep(0)
        sampler.release("b")  # still in the queue
        await asyncio.sleep(0)
        sampler.release("a")
        for task in tasks:
            with pytest.raises(SamplerError, match="released"):
                await asyncio.wait_for(task, 5)

    asyncio.run(main())


def test_one_sampler_serves_one_event_loop_after_another():
    sampler = TorchSampler(policy(), slots=2, max_length=400)
    fresh = TorchSampler(policy(), slots=2, max_length=400)
    play(sampler, rollouts(5, seed=1))
    assert tokens(play(sampler, rollouts(5))) == tokens(play(fresh, rollouts(5)))

    async def leave() -> None:
        asyncio.get_running_loop().create_task(rollouts(1, seed=2)[0].run(sampler))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(leave())  # the loop ends in the middle of a turn
    assert len(tokens(play(sampler, rollouts(3, seed=3)))) == 3


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (SampleRequest("t", 0, (), 5, 1.0, NO_STOP, 0), "at least one id"),
        (SampleRequest("t", 0, (1,), 0, 1.0, NO_STOP, 0), "max_tokens=0"),
        (SampleRequest("t", 0, (1,), 5, -1.0, NO_STOP, 0), "temperature=-1.0"),
        (SampleRequest("t", 0, (1,), 5, float("nan"), NO_STOP, 0), "temperature=nan"),
        (SampleRequest("t", 0, (1,) * 60, 5, 1.0, NO_STOP, 0), "holds 64 per trajectory"),
        (SampleRequest("t", 0, (1, VOCABULARY), 5, 1.0, NO_STOP, 0), "the model has ids from 0 to 95"),
        (SampleRequest("t", 0, (-1,), 5, 1.0, NO_STOP, 0), "the model has ids from 0 to 95"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(request_: SampleRequest, told: str):
    with pytest.raises(SamplerError, match=told):
        asyncio.run(TorchSampler(policy(), slots=1, max_length=64).sample(request_))


def test_the_longest_context_that_fits_is_served_to_the_end():
    sampler = TorchSampler(policy(), slots=2, max_length=300)
    scripts = play(sampler, [Rollout("a", [1] * 280, [(20, [])]), Rollout("b", [1], [(299, [])])])
    assert [len(script.completions[0].token_ids) for script in scripts] == [20, 299]


def test_two_turns_of_one_trajectory_at_once_are_refused():
    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=64)
        request = SampleRequest("t", 0, (1,), 5, 1.0, NO_STOP, 0)
        first, second = await asyncio.gather(sampler.sample(request), sampler.sample(request), return_exceptions=True)
        assert isinstance(first, Completion)
        assert isinstance(second, SamplerError)

    asyncio.run(main())


def test_a_failing_model_reaches_every_caller_and_the_sampler_lives_on():
    chosen = policy()
    sampler = TorchSampler(chosen, slots=2, max_length=400)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    async def main() -> list[object]:
        requests = (SampleRequest(name, 0, (1, 2), 5, 1.0, NO_STOP, 0) for name in "abc")
        return await asyncio.gather(*(sampler.sample(request) for request in requests), return_exceptions=True)

    handle = chosen.model.register_forward_pre_hook(fail)
    results = asyncio.run(main())
    assert all(isinstance(result, SamplerError) and "out of memory" in str(result) for result in results)
    handle.remove()

    assert len(tokens(play(sampler, rollouts(1, seed=4)))) == 1


def test_logits_that_are_not_finite_are_an_error_and_leave_no_trace():
    """A short context takes a slot full of values that are not finite, while a long one keeps them in view."""
    chosen = policy()
    sampler = TorchSampler(chosen, slots=2, max_length=400)
    weights = chosen.model.model.layers[0].self_attn.k_proj.weight
    kept = weights.detach().clone()
    scripts = [("a", 200, 5), ("b", 3, 20), ("c", 200, 20)]
    diverged, *sound = [Rollout(name, [7] * length, [(count, [])]) for name, length, count in scripts]
    with torch.no_grad():
        weights.fill_(float("nan"))
    with pytest.raises(SamplerError, match="not finite"):
        play(sampler, [diverged])
    with torch.no_grad():
        weights.copy_(kept)
    assert all(len(script.completions[0].token_ids) == 20 for script in play(sampler, sound))


def test_it_is_a_sampler_and_counts():
    sampler = TorchSampler(policy(), slots=2, max_length=400)
    assert isinstance(sampler, Sampler)
    play(sampler, rollouts(2))
    assert sampler.stats.busy_s > 0
    assert sampler.stats.steps > 0
    sampler.stats = SamplerStats()
    assert (sampler.stats.action_tokens, sampler.stats.prefill_tokens, sampler.stats.steps) == (0, 0, 0)


def test_the_seconds_of_a_completion_are_those_of_its_own_passes():
    """With one slot two trajectories share no pass: the second one's wait for it is not in its seconds."""

    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=64)

        async def turn(name: str, max_tokens: int) -> float:
            completion = await sampler.sample(SampleRequest(name, 0, (1,), max_tokens, 1.0, NO_STOP, 0))
            sampler.release(name)
            return completion.seconds

        long, short = await asyncio.gather(turn("a", 50), turn("b", 1))
        assert 0 < short < long
        assert long + short <= sampler.stats.busy_s

    asyncio.run(main())


def test_a_turn_ends_with_the_token_that_uses_up_its_time():
    async def main() -> None:
        sampler = TorchSampler(policy(), slots=1, max_length=64)
        cut = await sampler.sample(SampleRequest("a", 0, (1,), 50, 1.0, NO_STOP, 0, max_seconds=1e-9))
        assert (len(cut.token_ids), len(cut.logprobs), cut.finish_reason) == (1, 1, "time")
        sampler.release("a")
        whole = await sampler.sample(SampleRequest("a", 0, (1,), 50, 1.0, NO_STOP, 0, max_seconds=1e9))
        assert whole.token_ids[:1] == cut.token_ids
        assert whole.finish_reason == "length"

    asyncio.run(main())


def test_a_pass_that_stalls_is_not_all_the_policys_own_time() -> None:
    """Passes of a second each, of which the fifth takes a hundred: it counts as five, so that the 20 seconds last."""
    subject, passed, now = policy(), 0, 0.0

    def passes(*_: object) -> None:
        nonlocal passed, now
        passed += 1
        now += 100.0 if passed == 5 else 1.0

    sampler = TorchSampler(subject, slots=1, max_length=64, clock=lambda: now)
    hook = subject.model.register_forward_hook(passes)
    try:
        request = SampleRequest("a", 0, (1,), 10, 1.0, NO_STOP, 0, max_seconds=20.0)
        completion = asyncio.run(sampler.sample(request))
    finally:
        hook.remove()
    assert (passed, len(completion.token_ids), completion.finish_reason) == (10, 10, "length")
    assert completion.seconds == 14.0
    assert sampler.stats.busy_s == 109.0


def test_new_weights_reach_a_turn_at_its_next_token_and_lose_none():
    """`a` is in the middle of a turn, `b` has finished one and asks for another just then, `c` waits for a slot."""
    chosen = policy()
    sampler, older = TorchSampler(chosen, slots=2, max_length=100), policy()
    newer = {name: weights + 0.05 for name, weights in chosen.model.state_dict().items()}
    contexts = {"a": [1, 2, 3], "b": [4, 5], "c": [6, 7]}

    async def ask(name: str, turn: int, count: int) -> Completion:
        return await sampler.sample(SampleRequest(name, turn, tuple(contexts[name]), count, 1.0, NO_STOP, seed=0))

    async def end(name: str, turn: int, count: int) -> Completion:
        completion = await ask(name, turn, count)
        sampler.release(name)
        return completion

    async def main() -> tuple[dict[str, Completion], int]:
        long = asyncio.create_task(end("a", 0, 30))
        contexts["b"] += (await ask("b", 0, 6)).token_ids
        waiting = [asyncio.create_task(end("b", 1, 6)), asyncio.create_task(end("c", 0, 6))]
        await asyncio.sleep(0)  # they have asked, and no pass was made since
        before = sampler.stats.action_tokens - 6
        sampler.update_weights(1, newer)
        done = dict(zip("abc", await asyncio.wait_for(asyncio.gather(long, *waiting), 30), strict=True))
        return done, before

    done, before = asyncio.run(main())
    assert 0 < before < 30
    assert [done[name].policy_version for name in "abc"] == [0, 1, 1]
    for name, completion in done.items():
        new, _ = plain_logprobs(chosen.model, contexts[name], completion, 1.0)
        old, _ = plain_logprobs(older.model, contexts[name], completion, 1.0)
        expected = torch.cat([old[:before], new[before:]]) if name == "a" else new
        assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=0)
    assert not torch.allclose(old, new, atol=1e-2)
