"""The losses beside TRL's GRPOTrainer: the same weights and batch through both, loss and gradient compared.

Needs the extra `bench`; run: python -m pytest -s tests/extra/test_trl.py (-s shows the differences)

TRL's side is `GRPOTrainer.compute_loss`, fed with micro-batches as its own rollouts would give them (prompts padded on
the left, completions on the right, `tool_mask` 0 on what a tool said). Ours is `Learner.accumulate` on TrainingSamples.
The batch is off-policy: old logprobs come from other weights, so that ratios are not 1 and some are clipped.

The conventions, by TRL's `loss_type` and `importance_sampling_level`:

    grpo, token      ClippedLoss("sequence-mean-token-mean"): the same if TRL's micro-batches have equally many rows
    grpo, sequence   SequenceLoss: GSPO, the same
    dapo             ClippedLoss("token-mean"): the same, the denominator is the whole batch's in both
    dr_grpo          ClippedLoss(max_completion_length): the same
    bnpo             "token-mean" of each micro-batch, then the mean of those: the same in one micro-batch, while in
                     several it depends on how the batch was split, which ours never does
    beta             WithTerms(..., kl=beta), aggregated as the loss is: the same with `use_bias_correction_kl=False`.
                     TRL's default multiplies k3 by the differentiated ratio (arXiv 2512.02556), GRPO's does not
    advantages       TRL divides by std + 1e-4, we by std + eps with eps = 1e-6: the same for eps = 1e-4
"""

import random
from dataclasses import dataclass

import pytest
import torch
from tests.doubles.learners import learner_of
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from evoseek.credit import group_advantages
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.base import Totals
from evoseek.loss.clipped import ClippedLoss, SequenceLoss
from evoseek.loss.terms import WithTerms
from evoseek.models.load import Policy, load_policy, save_policy
from evoseek.types import TrainingSample

trl = pytest.importorskip("trl", exc_type=ImportError)
datasets = pytest.importorskip("datasets", exc_type=ImportError)

TOLERANCE = 1e-5
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
ROWS, GROUP, LONGEST = len(REWARDS), 4, 64
TEMPERATURE, BETA = 0.8, 0.05
LOW, HIGH = 0.1, 0.3


@dataclass(frozen=True)
class Row:
    """A rollout: prompt, then action, observation and action, with everything that a loss needs of each token."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]  # of the completion: 0 on observations
    old: list[float]
    reference: list[float]
    advantage: float


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A small Llama with random weights, saved."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    path = tmp_path_factory.mktemp("policy") / "policy"
    save_policy(Policy(LlamaForCausalLM(config), tokenizer, "small"), path)
    return path


@pytest.fixture(scope="module")
def rows(directory):
    """Rollouts of unlike lengths in two groups. One has no observation, one ends in an observation."""
    rng = random.Random(0)
    made = []
    for number, advantage in enumerate(our_advantages(eps=1e-6)):
        kinds = {0: (1,), 1: (1, 0)}.get(number, (1, 0, 1, 0, 1))
        mask = [kind for kind in kinds for _ in range(rng.randint(2, 9))]
        prompt, completion = ([rng.randrange(10, 300) for _ in range(n)] for n in (rng.randint(1, 7), len(mask)))
        old, reference = (plain_logprobs(directory, prompt, completion, seed) for seed in (1, 2))
        made.append(Row(prompt, completion, mask, old, reference, advantage))
    return made


def our_advantages(eps):
    return group_advantages(REWARDS, [number // GROUP for number in range(ROWS)], eps=eps)


def plain_logprobs(directory, prompt, completion, seed):
    """Of the completion's tokens, under weights somewhat off the saved ones."""
    model = load_policy(str(directory)).model
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    logprobs = (logits / TEMPERATURE).log_softmax(dim=-1)
    return logprobs.gather(1, torch.tensor(completion)[:, None]).squeeze(1).tolist()


# -- TRL's side


def make_trainer(directory, tmp_path, micro_batch, *, rollout_func=None, **options):
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=ROWS // micro_batch,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        temperature=TEMPERATURE,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        use_bias_correction_kl=False,
        report_to="none",
        **options,
    )
    data = datasets.Dataset.from_dict({"prompt": ["solve"] * ROWS})
    return trl.GRPOTrainer(
        str(directory), reward_funcs=reward, args=config, train_dataset=data, rollout_func=rollout_func
    )


def reward(completions, **_):
    return REWARDS


def theirs(trainer, rows, micro_batch):
    """Loss, and gradient by parameter, of the rows in micro-batches."""
    tokens = torch.tensor(float(sum(sum(row.mask) for row in rows)))
    trainer.current_gradient_accumulation_steps = len(rows) // micro_batch  # the training loop sets it
    trainer.model.train()
    trainer.model.zero_grad()
    total = 0.0
    for part in (rows[start : start + micro_batch] for start in range(0, len(rows), micro_batch)):
        loss = trainer.compute_loss(trainer.model, trl_inputs(part) | {"num_items_in_batch": tokens})
        loss.backward()
        total += float(loss.detach())
    return total, gradient(trainer.model)


def trl_inputs(rows):
    def pad(lists, value, side="right"):
        tensors = [torch.tensor(values) for values in lists]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)

    return {
        "prompt_ids": pad([row.prompt for row in rows], 0, "left"),
        "prompt_mask": pad([[1] * len(row.prompt) for row in rows], 0, "left"),
        "completion_ids": pad([row.completion for row in rows], 0),
        "completion_mask": pad([[1] * len(row.completion) for row in rows], 0),
        "tool_mask": pad([row.mask for row in rows], 1),
        "advantages": torch.tensor([row.advantage for row in rows]),
        "old_per_token_logps": pad([row.old for row in rows], 0.0),
        "ref_per_token_logps": pad([row.reference for row in rows], 0.0),
    }


# -- our side


def ours(directory, rows, loss, token_budget=60):
    """Loss, gradient by parameter, and all metrics."""
    model = load_policy(str(directory)).model
    forward = LogprobModel(model, temperature=TEMPERATURE)
    learner = learner_of(forward, loss=loss, learning_rate=1e-3, token_budget=token_budget)
    tokens = sum(sum(row.mask) for row in rows)
    metrics = learner.accumulate([our_sample(row) for row in rows], Totals(tokens=tokens, sequences=len(rows)))
    return metrics["loss"], gradient(model), metrics


def our_sample(row):
    def spread(values):
        return (0.0,) * len(row.prompt) + tuple(v if on else 0.0 for v, on in zip(values, row.mask, strict=True))

    return TrainingSample(
        token_ids=tuple(row.prompt + row.completion),
        loss_mask=(False,) * len(row.prompt) + tuple(map(bool, row.mask)),
        rollout_logprobs=spread(row.old),
        old_logprobs=spread(row.old),
        advantages=spread([row.advantage] * len(row.mask)),
        ref_logprobs=spread(row.reference),
    )


def gradient(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def largest_difference(one, other):
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


class PerSequence(SequenceLoss):
    """Its KL is aggregated as TRL does it."""

    aggregate = "sequence-mean-token-mean"


CASES = {
    "grpo": ({"loss_type": "grpo"}, ClippedLoss(LOW, HIGH, "sequence-mean-token-mean")),
    "dapo": ({"loss_type": "dapo"}, ClippedLoss(LOW, HIGH, "token-mean")),
    "dr_grpo": ({"loss_type": "dr_grpo"}, ClippedLoss(LOW, HIGH, LONGEST)),
    "gspo": ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, PerSequence(LOW, HIGH)),
}


@pytest.mark.parametrize("beta", [0.0, BETA], ids=["", "kl"])
@pytest.mark.parametrize("micro_batch", [8, 2])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_agree(name, micro_batch, beta, directory, rows, tmp_path):
    settings, loss = CASES[name]
    trainer = make_trainer(directory, tmp_path, micro_batch, epsilon=LOW, epsilon_high=HIGH, beta=beta, **settings)
    their_loss, their_gradient = theirs(trainer, rows, micro_batch)
    our_loss, our_gradient, metrics = ours(directory, rows, WithTerms(loss, kl=beta))
    differences = abs(our_loss - their_loss), largest_difference(our_gradient, their_gradient)
    print(f"{name}, {micro_batch} rows, beta {beta}: loss {our_loss:.6f}, differences {differences}")
    assert 0.1 < metrics["clip_ratio/region_mean"] < 0.6
    assert max(float(value.abs().max()) for value in our_gradient.values()) > 1000 * TOLERANCE
    assert max(differences) < TOLERANCE


def test_bnpo_depends_on_the_split_where_the_token_mean_does_not(directory, rows, tmp_path):
    loss = ClippedLoss(LOW, HIGH, "token-mean")
    settings = {"loss_type": "bnpo", "epsilon": LOW, "epsilon_high": HIGH}
    (one, gradient_one), (two, gradient_two) = (
        theirs(make_trainer(directory, tmp_path, size, **settings), rows, size) for size in (8, 2)
    )
    for budget in (60, 10_000):
        value, found, _ = ours(directory, rows, loss, budget)
        assert abs(value - one) < TOLERANCE
        assert largest_difference(found, gradient_one) < TOLERANCE
    assert largest_difference(gradient_two, gradient_one) > 100 * TOLERANCE
    assert abs(two - one) > 100 * TOLERANCE


def test_trl_makes_the_same_inputs_and_advantages_of_these_rollouts(directory, rows, tmp_path):
    """What `trl_inputs` builds by hand, from TRL's own rollout code; its advantages are ours with eps = 1e-4."""

    def rollouts(prompts, trainer):
        return {
            "prompt_ids": [row.prompt for row in rows],
            "completion_ids": [row.completion for row in rows],
            "logprobs": [row.old for row in rows],
            "env_mask": [row.mask for row in rows],
        }

    trainer = make_trainer(directory, tmp_path, ROWS, rollout_func=rollouts)
    made = trainer._generate_and_score_completions([{"prompt": "solve"}] * ROWS)
    expected = trl_inputs(rows)
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask"):
        assert torch.equal(made[name], expected[name]), name
    assert int(made["num_items_in_batch"]) == sum(sum(row.mask) for row in rows)
    assert made["advantages"].tolist() == pytest.approx(our_advantages(eps=1e-4), abs=1e-6)
    assert made["advantages"].tolist() == pytest.approx(our_advantages(eps=1e-6), abs=3e-4)
