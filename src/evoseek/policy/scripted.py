"""A sampler that says what a script says: a public double for tests of environments, rewards and rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from evoseek.errors import SamplerError
from evoseek.types import Completion, SampleRequest

Script = Callable[[SampleRequest], str | Sequence[int] | Completion]
"""What to say to a request: text, ids, or a whole completion. It may raise."""


class ScriptedSampler:
    """Implements `Sampler` from a script: a function of the request, or the texts of each trajectory's turns by its id.

    Text is encoded as template text (a model can write control tokens). A completion longer than the request's
    `max_tokens` is cut and ends by `length`. Everything asked and given is kept in `requests` and `completions`, in
    order.

    >>> ScriptedSampler({"q1/0": ["<search> mayor </search>", "<answer> Meri </answer>"]}, tokenizer)  # doctest: +SKIP
    """

    def __init__(
        self,
        script: Script | Mapping[str, Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        *,
        logprob: float = 0.0,
        policy_version: int = 0,
    ) -> None:
        self._script = script if callable(script) else _by_trajectory(script)
        self._tokenizer = tokenizer
        self._logprob = logprob
        self.policy_version = policy_version
        self.requests: list[SampleRequest] = []
        self.completions: list[Completion] = []
        self.released: list[str] = []

    async def sample(self, request: SampleRequest) -> Completion:
        """The script's completion."""
        self.requests.append(request)
        said = self._script(request)
        completion = said if isinstance(said, Completion) else self._complete(said, request.max_tokens)
        self.completions.append(completion)
        return completion

    def release(self, trajectory_id: str) -> None:
        """Remember that the trajectory has ended."""
        self.released.append(trajectory_id)

    def _complete(self, said: str | Sequence[int], max_tokens: int) -> Completion:
        ids = self._tokenizer.encode(said, add_special_tokens=False) if isinstance(said, str) else said
        kept = tuple(ids)[:max_tokens]
        reason = "stop" if len(kept) == len(ids) else "length"
        return Completion(kept, (self._logprob,) * len(kept), reason, self.policy_version)


def _by_trajectory(texts: Mapping[str, Sequence[str]]) -> Script:
    def script(request: SampleRequest) -> str:
        turns = texts.get(request.trajectory_id, ())
        if request.turn >= len(turns):
            raise SamplerError(f"The script has no turn {request.turn} of the trajectory {request.trajectory_id!r}.")
        return turns[request.turn]

    return script
