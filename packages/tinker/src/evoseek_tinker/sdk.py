"""The `tinker` SDK: all calls of it are in this file. It was read in version 0.38 and run in 0.24.1.

The SDK retries what may be retried (connections, overload, restarts of the service) by itself; what it gives up on
becomes a ServiceError here. The API key is passed on and is kept out of every message.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from evoseek.errors import ConfigError, EvoseekError
from evoseek.samplers.torch.stops import StopRule
from evoseek.samplers.vllm.turn import Sampled

T = TypeVar("T")

_EPS = 1e-8  # the term that AdamW adds to the denominator

OLDEST, BEFORE = (0, 24), (1, 0)  # versions with every method and field that is used here
API_KEY = "TINKER_API_KEY"
_NO_KEY = "tml-none"  # for servers that ask for none: the SDK wants one of this form

_WORKER = ThreadPoolExecutor(1, "tinker")  # the SDK's blocking calls complain in a thread that runs an event loop


class ServiceError(EvoseekError):
    """The service failed or refused a call, after the SDK's own retries."""


@dataclass(frozen=True, slots=True)
class AdamStep:
    """The numbers of an optimizer step: AdamW, on a gradient whose norm is clipped to `max_grad_norm`."""

    learning_rate: float
    betas: tuple[float, float]
    weight_decay: float
    max_grad_norm: float


@dataclass(frozen=True, slots=True)
class NewModel:
    """An adapter to be made over a base that the service has, under the name that the service knows it by."""

    base: str
    rank: int
    seed: int


def load_sdk() -> Any:
    """The module `tinker`. Raises ConfigError if it is not installed, or in a version that is not known."""
    try:
        sdk = import_module("tinker")
    except ImportError as error:
        raise ConfigError(
            "learner.name is tinker, but the package tinker is not installed. Install it with "
            "`pip install tinker`, or train here with learner.name = torch."
        ) from error
    check_version(version("tinker"))
    return sdk


def check_version(found: str) -> None:
    """Raise ConfigError for a version of the SDK that this file was not written for."""
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not OLDEST <= numbers < BEFORE:
        oldest, before = (".".join(map(str, one)) for one in (OLDEST, BEFORE))
        raise ConfigError(
            f"The package tinker is version {found}, but evoseek supports versions from {oldest} up to {before}. "
            f"Install one of them: `pip install 'tinker>={oldest},<{before}'`."
        )


def find_key(variable: str, base_url: str) -> str:
    """The API key in an environment variable. A server of one's own (`base_url`) may need none. Raises ConfigError."""
    key = os.environ.get(variable, "")
    if not key and not base_url:
        raise ConfigError(
            f"The service needs an API key, but the environment variable {variable} (learner.api_key_env) is not set. "
            "Set it to your key, or learner.base_url to a server that needs none."
        )
    return key or _NO_KEY


class RemoteModel:
    """An adapter that is trained at a service, and its sampler. Nothing is sent before the first call that needs the
    model; `state` is then the saved state that it continues from.

    `sdk` is the module, or a double of it; `timeout_s` is how long a call of training may take. `adapted` says whether
    logprobs are the adapter's, or its frozen base's. Every method raises ServiceError.
    """

    def __init__(
        self,
        sdk: Any,
        new: NewModel,
        *,
        api_key: str,
        base_url: str = "",
        state: str = "",
        timeout_s: float = math.inf,
        gradient: Literal["sum", "mean"] = "sum",
    ) -> None:
        self.new, self.state, self.adapted = new, state, True
        self._sdk, self._key, self._url = sdk, api_key, base_url
        self._timeout_s = None if math.isinf(timeout_s) else timeout_s
        self._gradient = gradient
        self._service: Any = None
        self._training: Any = None
        self._base_sampling: Any = None
        self._saves = 0

    def __str__(self) -> str:
        """In words: what is trained, and where."""
        return f"an adapter of rank {self.new.rank} over {self.new.base} at {self._url or 'the Tinker service'}"

    def logprobs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """For each row of token ids the logprobs of all tokens but the first, each given those before it."""
        if not rows:
            return []
        if not self.adapted:
            return self._call("compute_logprobs", lambda: self._base_logprobs(rows))
        zeros = [[0.0] * (len(row) - 1) for row in rows]
        data = self._cross_entropy(rows, zeros)
        output = self._call("forward", lambda: self._wait(self._opened().forward(data, "cross_entropy")))
        return self._read_logprobs(output, rows)

    def step(
        self,
        rows: Sequence[Sequence[int]],
        slopes: Sequence[Sequence[float]],
        logprobs: Sequence[Sequence[float]],
        adam: AdamStep,
    ) -> dict[str, float]:
        """Make an optimizer step on a loss with these slopes: its derivatives by the logprobs of all tokens of the rows
        but the first, which are `logprobs` now (any number where the slope is 0). Gives the norm of the gradient
        (`grad_norm`) if the service reports it.
        """
        params = self._sdk.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.betas[0],
            beta2=adam.betas[1],
            eps=_EPS,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.max_grad_norm,
        )

        def run() -> tuple[Any, Any]:
            training = self._opened()
            if self._gradient == "mean":
                passed = training.forward_backward(self._importance(rows, slopes, logprobs), "importance_sampling")
            else:
                weights = [[-slope for slope in row] for row in slopes]  # its loss: the sum of -weight x logprob
                passed = training.forward_backward(self._cross_entropy(rows, weights), "cross_entropy")
            stepped = training.optim_step(params)  # sent at once, so that both fit into one of the service's cycles
            return self._wait(passed), self._wait(stepped)

        passed, stepped = self._call("forward_backward and optim_step", run)
        metrics = {str(name): float(value) for name, value in (getattr(stepped, "metrics", None) or {}).items()}
        self._check_gradient(getattr(passed, "metrics", None) or {}, metrics)
        norm = next((value for name, value in metrics.items() if name.endswith("grad_norm")), None)
        return {} if norm is None else {"grad_norm": norm}

    def save(self) -> str:
        """Save weights and optimizer at the service; `state` is then where, and it is returned."""
        self._saves += 1
        name = f"evoseek-{self._saves:06d}"
        saved = self._call("save_state", lambda: self._wait(self._opened().save_state(name)))
        self.state = str(saved.path)
        return self.state

    def forget_optimizer(self) -> None:
        """Continue with the same weights and a new optimizer."""
        state = self.save()

        def begin() -> Any:
            training = self._create()
            self._wait(training.load_state(state))
            return training

        self._training = self._call("load_state", begin)

    def sampling(self) -> Any:
        """A client that samples with the weights as they are now."""
        return self._call(
            "save_weights_and_get_sampling_client",
            lambda: self._wait(self._opened().save_weights_and_get_sampling_client()),
        )

    async def sample(
        self,
        client: Any,
        token_ids: Sequence[int],
        rule: StopRule,
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> Sampled:
        """One sample from such a client. The service takes stop strings or stop tokens; where the rule has both it gets
        the strings, and may write on after a stop token."""
        params = self._sdk.SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            stop=list(rule.strings) or sorted(rule.token_ids) or None,
        )
        prompt = self._sdk.ModelInput.from_ints(list(token_ids))
        try:
            response = await client.sample_async(prompt=prompt, num_samples=1, sampling_params=params)
            sequence = response.sequences[0]
            ids, logprobs = [int(token) for token in sequence.tokens], sequence.logprobs
            return Sampled(ids, [] if logprobs is None else list(map(float, logprobs)), str(sequence.stop_reason))
        except Exception as error:  # the SDK's errors are of several libraries
            raise self._failure("sample", error) from error

    def _opened(self) -> Any:
        """The client that trains the model."""
        if self._training is None:
            training = self._create()
            if self.state:
                self._wait(training.load_state_with_optimizer(self.state))
            self._training = training
        return self._training

    def _create(self) -> Any:
        new = self.new
        return self._wait(
            self._client().create_lora_training_client(
                new.base,
                rank=new.rank,
                seed=new.seed,
            )
        )

    def _client(self) -> Any:
        if self._service is None:
            url = {"base_url": self._url} if self._url else {}
            self._service = self._sdk.ServiceClient(api_key=self._key, **url)
        return self._service

    def _base_logprobs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        if self._base_sampling is None:
            self._base_sampling = self._wait(self._client().create_sampling_client(base_model=self.new.base))
        prompts = [self._sdk.ModelInput.from_ints(list(row)) for row in rows]
        pending = [self._base_sampling.compute_logprobs(prompt) for prompt in prompts]
        found = [[value for value in self._wait(one) if value is not None] for one in pending]  # the first has none
        return [self._checked(values, len(row) - 1) for values, row in zip(found, rows, strict=True)]

    def _read_logprobs(self, output: Any, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        given = output.loss_fn_outputs
        if len(given) != len(rows):
            raise ServiceError(f"The service gave logprobs of {len(given)} sequences, but {len(rows)} were sent.")
        return [self._checked(one["logprobs"].data, len(row) - 1) for one, row in zip(given, rows, strict=True)]

    def _checked(self, values: Sequence[float], expected: int) -> list[float]:
        if len(values) != expected:
            raise ServiceError(f"The service gave {len(values)} logprobs of a sequence, but {expected} were expected.")
        return [float(value) for value in values]

    def _cross_entropy(self, rows: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> list[Any]:
        return [self._datum(row, weights=own) for row, own in zip(rows, weights, strict=True)]

    def _importance(
        self, rows: Sequence[Sequence[int]], slopes: Sequence[Sequence[float]], logprobs: Sequence[Sequence[float]]
    ) -> list[Any]:
        """Return data with the same gradient for a server that divides the gradient of each sequence by the sum of its
        weights, and all by the number of sequences: by a loss whose weights are 1, as is its ratio. Cross-entropy would
        divide by the sum of the slopes, which may be 0 or negative."""
        return [
            self._datum(row, logprobs=now, advantages=[-slope * len(own) * len(rows) for slope in own])
            for row, own, now in zip(rows, slopes, logprobs, strict=True)
        ]

    def _datum(self, row: Sequence[int], **inputs: Sequence[float]) -> Any:
        def tensor(values: Sequence[float], dtype: str) -> Any:
            return self._sdk.TensorData(data=list(values), dtype=dtype, shape=[len(values)])

        given = {name: tensor(values, "float32") for name, values in inputs.items()}
        given["target_tokens"] = tensor(row[1:], "int64")
        return self._sdk.Datum(model_input=self._sdk.ModelInput.from_ints(list(row[:-1])), loss_fn_inputs=given)

    def _check_gradient(self, passed: Any, stepped: dict[str, float]) -> None:
        if self._gradient == "sum" and not passed and any(name.startswith("skyrl.ai/") for name in stepped):
            raise ServiceError(
                "The server is SkyRL with its JAX backend, which divides the gradient of each sequence by the sum of "
                "its weights: a loss of evoseek's would become another one. Set learner.gradient to mean, which "
                "allows for that, and begin again."
            )

    def _wait(self, pending: Any) -> Any:
        """The result of a future; what is none already is one."""
        result = getattr(pending, "result", None)
        return pending if result is None else result(timeout=self._timeout_s)

    def _call(self, name: str, work: Callable[[], T]) -> T:
        try:
            return _WORKER.submit(work).result()
        except ServiceError:
            raise
        except Exception as error:  # the SDK's errors are of several libraries
            raise self._failure(name, error) from error

    def _failure(self, name: str, error: Exception) -> ServiceError:
        said = f"{type(error).__name__}: {error}".replace(self._key, "***").strip().rstrip(".:")
        return ServiceError(f"{self._url or 'The Tinker service'} failed at {name}: {said}.")
