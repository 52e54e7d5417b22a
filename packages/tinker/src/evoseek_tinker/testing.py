"""A test double of the `tinker` SDK, and of the service behind it: it trains adapters in this process.

    service = ScriptedTinker("tiny")

    class Learner(TinkerLearner):
        @classmethod
        def sdk(cls):
            return service

It has the types and methods of the SDK that evoseek uses, with their names and arguments, and computes what the service
documents. A run whose `learner.name` is such a class rehearses one with the service, at no cost.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from evoseek.models.load import load_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import SampleRequest, StopConditions

SCALE = 32.0  # the service's alpha


@dataclass(frozen=True, slots=True)
class TensorData:
    """Numbers, with the name of their type."""

    data: Sequence[float]
    dtype: str
    shape: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Token ids."""

    token_ids: Sequence[int]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> ModelInput:
        """Of these ids."""
        return cls(tokens)

    def to_ints(self) -> list[int]:
        """The ids."""
        return list(self.token_ids)


@dataclass(frozen=True, slots=True)
class Datum:
    """A sequence to learn from."""

    model_input: Any
    loss_fn_inputs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdamParams:
    """AdamW's numbers, with the SDK's defaults."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a sample is drawn."""

    max_tokens: int | None = None
    seed: int | None = None
    stop: Any = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """A future whose result is there, or which failed."""

    value: Any = None
    error: Exception | None = None

    def result(self, timeout: float | None = None) -> Any:
        """The result, or the failure."""
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, with the fields that it has in the SDK. Each call has some of them."""

    path: str = ""
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    stop_reason: str = ""
    sequences: Sequence[Answer] = ()
    loss_fn_outputs: Sequence[Mapping[str, TensorData]] = ()
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


class ScriptedTinker:
    """The module `tinker`, as far as evoseek uses it.

    model: a policy, named as in `load_policy`, which is the base for every name. fails: is called with the name of each
    method before it does anything, and may raise, as the SDK does once its own retries are over. gradient: how the
    server divides gradients (see `learner.gradient`). types: where the types are taken from, such as the real module.
    token_s: how many seconds a token of a sample takes.

    `calls` are the names of the methods that were called, in order; `keys` the API keys that came with clients, and
    `sampled` the requests for samples. `trainings` are the training clients.
    """

    TinkerError = RuntimeError

    def __init__(
        self,
        model: str = "tiny",
        *,
        fails: Callable[[str], None] = lambda _: None,
        gradient: Literal["sum", "mean"] = "sum",
        types: Any = None,
        token_s: float = 0.0,
    ) -> None:
        self.model, self.fails, self.gradient, self.token_s = model, fails, gradient, token_s
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.sampled: list[SamplingParams] = []
        self.trainings: list[ScriptedTraining] = []
        self.states: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        for name, own in (
            ("TensorData", TensorData),
            ("ModelInput", ModelInput),
            ("Datum", Datum),
            ("AdamParams", AdamParams),
            ("SamplingParams", SamplingParams),
        ):
            setattr(self, name, own if types is None else getattr(types, name))

    def ServiceClient(self, *, api_key: str, base_url: str = "") -> ScriptedService:
        """A client."""
        self.keys.append(api_key)
        return ScriptedService(self)

    def did(self, name: str) -> None:
        """Note a call, which may fail."""
        self.calls.append(name)
        self.fails(name)

    def future(self, name: str, work: Callable[[], Any]) -> Done:
        """What a call returns. It fails where its result is asked for, as a request does."""
        try:
            self.did(name)
            return Done(work())
        except Exception as error:
            return Done(error=error)


@dataclass(frozen=True, slots=True)
class ScriptedService:
    """A ServiceClient."""

    tinker: ScriptedTinker

    def create_lora_training_client(self, base_model: str, rank: int = 32, **options: Any) -> Any:
        """A new adapter."""
        self.tinker.did("create_lora_training_client")
        made = ScriptedTraining(self.tinker, rank, int(options.get("seed") or 0), len(self.tinker.trainings))
        self.tinker.trainings.append(made)
        return made

    def create_sampling_client(self, *, base_model: str) -> ScriptedSampling:
        """The base."""
        self.tinker.did("create_sampling_client")
        return ScriptedSampling(self.tinker, load_policy(self.tinker.model))


class ScriptedTraining:
    """A TrainingClient: an adapter in this process.

    `parameters` are its weights by name, `gradient` is the last step's before it was clipped, and `last_step` its
    numbers.
    """

    def __init__(self, tinker: ScriptedTinker, rank: int, seed: int, number: int) -> None:
        self._tinker, self._number = tinker, number
        self.policy = add_adapter(load_policy(tinker.model), "policy", rank=rank, alpha=SCALE, seed=seed)
        named = self.policy.model.named_parameters()
        self.parameters = {name: value for name, value in named if value.requires_grad}
        self.optimizer = torch.optim.AdamW(self.parameters.values())
        self.gradient: dict[str, torch.Tensor] = {}
        self.last_step: AdamParams | None = None
        self._count = 0

    def forward(self, data: Sequence[Any], loss_fn: str) -> Done:
        """Logprobs."""
        return self._tinker.future("forward", lambda: self._pass(data, loss_fn, backward=False))

    def forward_backward(self, data: Sequence[Any], loss_fn: str) -> Done:
        """Logprobs, and the gradient of a loss that is added to what there is."""
        return self._tinker.future("forward_backward", lambda: self._pass(data, loss_fn, backward=True))

    def optim_step(self, params: Any) -> Done:
        """A step of AdamW."""
        return self._tinker.future("optim_step", lambda: self._step(params))

    def save_state(self, name: str, ttl_seconds: int | None = None) -> Done:
        """Keep weights and optimizer."""
        return self._tinker.future("save_state", lambda: self._save(f"tinker://{self._number}/weights/{name}"))

    def load_state(self, path: str) -> Done:
        """Become the saved weights, with a new optimizer."""
        return self._tinker.future("load_state", lambda: self._load(path, optimizer=False))

    def load_state_with_optimizer(self, path: str) -> Done:
        """Become what was saved."""
        return self._tinker.future("load_state_with_optimizer", lambda: self._load(path, optimizer=True))

    def save_weights_and_get_sampling_client(self) -> Any:
        """A client that samples with a copy of the weights."""
        self._tinker.did("save_weights_and_get_sampling_client")
        return ScriptedSampling(self._tinker, copy.deepcopy(self.policy))

    def _pass(self, data: Sequence[Any], loss_fn: str, *, backward: bool) -> Answer:
        outputs: list[Mapping[str, TensorData]] = []
        with torch.set_grad_enabled(backward):
            for datum in data:
                given = {name: torch.tensor(list(value.data)) for name, value in datum.loss_fn_inputs.items()}
                logprobs = logprobs_of(self.policy, datum.model_input.to_ints(), given["target_tokens"].long())
                outputs.append({"logprobs": TensorData(logprobs.tolist(), "float32", [len(logprobs)])})
                if backward:
                    (self._loss(logprobs, given, loss_fn) / self._divisor(data, given)).backward()
        metrics = {"loss:sum": 0.0} if self._tinker.gradient == "sum" else {}
        return Answer(loss_fn_outputs=outputs, metrics=metrics)

    def _loss(self, logprobs: torch.Tensor, given: Mapping[str, torch.Tensor], loss_fn: str) -> torch.Tensor:
        if loss_fn == "cross_entropy":
            return -(given["weights"] * logprobs).sum()
        return -((logprobs - given["logprobs"]).exp() * given["advantages"]).sum()  # importance_sampling

    def _divisor(self, data: Sequence[Any], given: Mapping[str, torch.Tensor]) -> float:
        """What a server divides a sequence's gradient by: nothing, or as SkyRL's JAX backend does."""
        if self._tinker.gradient == "sum":
            return 1.0
        weights = given.get("weights", torch.ones(len(given["target_tokens"])))
        return max(float(weights.sum()), 1e-9) * len(data)

    def _step(self, params: Any) -> Answer:
        self.last_step = params
        self.gradient = {name: value.grad.clone() for name, value in self.parameters.items() if value.grad is not None}
        for group in self.optimizer.param_groups:
            group |= {"lr": params.learning_rate, "betas": (params.beta1, params.beta2), "eps": params.eps}
            group["weight_decay"] = params.weight_decay
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), params.grad_clip_norm or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Answer(metrics={"skyrl.ai/grad_norm": float(norm)} if self._tinker.gradient == "mean" else {})

    def _save(self, path: str) -> Answer:
        weights = {name: value.detach().clone() for name, value in self.parameters.items()}
        self._tinker.states[path] = weights, copy.deepcopy(self.optimizer.state_dict())
        return Answer(path=path)

    def _load(self, path: str, *, optimizer: bool) -> Answer:
        weights, state = self._tinker.states[path]
        with torch.no_grad():
            for name, value in weights.items():
                self.parameters[name].copy_(value)
        self.optimizer.state.clear()
        if optimizer:
            self.optimizer.load_state_dict(copy.deepcopy(dict(state)))
        return Answer(path=path)


class ScriptedSampling:
    """A SamplingClient over a policy that does not change."""

    def __init__(self, tinker: ScriptedTinker, policy: Policy) -> None:
        self._tinker, self._policy, self._sampler = tinker, policy, TorchSampler(policy, slots=16)

    async def sample_async(self, *, prompt: Any, num_samples: int, sampling_params: Any) -> Answer:
        """A sample. The same prompt and seed always give the same one."""
        self._tinker.did("sample")
        self._tinker.sampled.append(sampling_params)
        stop = sampling_params.stop or ()
        strings = tuple(one for one in stop if isinstance(one, str))
        ids = prompt.to_ints()
        seed = len(self._tinker.sampled) if sampling_params.seed is None else int(sampling_params.seed)
        name = hashlib.sha256(repr((seed, ids)).encode()).hexdigest()
        request = SampleRequest(
            name,
            0,
            ids,
            int(sampling_params.max_tokens),
            float(sampling_params.temperature),
            StopConditions(strings, tuple(one for one in stop if isinstance(one, int))),
            seed,
        )
        try:
            completion = await self._sampler.sample(request)
        finally:
            self._sampler.release(name)
        await asyncio.sleep(self._tinker.token_s * len(completion.token_ids))
        reason = "stop" if completion.finish_reason == "stop" else "length"
        return Answer(sequences=[Answer(tokens=completion.token_ids, logprobs=completion.logprobs, stop_reason=reason)])

    def compute_logprobs(self, prompt: Any) -> Done:
        """Logprobs of a prompt's tokens; the first has none."""
        ids = prompt.to_ints()

        def compute() -> list[float | None]:
            with torch.no_grad():
                return [None, *logprobs_of(self._policy, ids[:-1], torch.tensor(ids[1:])).tolist()]

        return self._tinker.future("compute_logprobs", compute)


def logprobs_of(policy: Policy, token_ids: Sequence[int], targets: torch.Tensor) -> torch.Tensor:
    """The logprob of each target after the ids up to its place: [T]."""
    with policy.active():
        logits: Any = policy.model(input_ids=torch.tensor([list(token_ids)])).logits  # pyright: ignore[reportCallIssue]
    return logits[0].float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
