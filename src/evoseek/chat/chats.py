"""Chat models from their settings, with their prompt sets: in-process, or behind an endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from evoseek.chat.endpoint import EndpointChat
from evoseek.chat.settings import AnswererSettings, EndpointSettings, SimulatorSettings
from evoseek.errors import CutReplyError, EmptyReplyError, SamplerError, ToolError
from evoseek.http.server import key_of
from evoseek.models.load import load_policy, prepare_process
from evoseek.models.policy import prompts_of
from evoseek.models.settings import PolicySettings
from evoseek.protocols import Chat, Sampler
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.prompts import PromptSet, load_prompts
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Message, SampleRequest, StopConditions

LONGEST = 4096
"""Maximum number of tokens of prompt and reply together, for an in-process model."""

_THINK = "<think>"
_END = 16  # tokens of a prompt that surely hold the tag and the white space after it


def make_chat(settings: EndpointSettings, *, section: str, seed: int, policy: PolicySettings) -> tuple[Chat, PromptSet]:
    """Make the chat model of the settings, with its prompt set. `section` names them in errors; `policy` gives device,
    data type and prompts. Raises ConfigError, or PolicyError for a model that cannot be loaded."""
    settings.check(section)
    if settings.base_url:
        prompts = load_prompts("default" if policy.prompts == "auto" else policy.prompts)
        return _endpoint(settings, section, seed), prompts
    model = load_policy(settings.model, device=policy.device, dtype=policy.dtype)
    prepare_process(model)
    longest = getattr(model.model.config.get_text_config(), "max_position_embeddings", LONGEST)
    sampler = TorchSampler(model, slots=settings.concurrency, max_length=min(longest, LONGEST))
    chat = SamplerChat(
        sampler,
        model.tokenizer,
        settings.model,
        max_tokens=settings.max_tokens,
        max_total_tokens=sampler.max_length,
        temperature=_temperature(settings),
        seed=seed,
    )
    return chat, load_prompts(prompts_of(model, policy.prompts))


def _temperature(settings: EndpointSettings) -> float:
    return settings.temperature if isinstance(settings, AnswererSettings | SimulatorSettings) else 0.0


def _endpoint(settings: EndpointSettings, section: str, seed: int) -> EndpointChat:
    return EndpointChat(
        settings.base_url,
        settings.model,
        api_key=key_of(settings.api_key_env, setting=f"{section}.api_key_env"),
        max_tokens=settings.max_tokens,
        temperature=_temperature(settings),
        timeout_s=settings.timeout_s,
        attempts=settings.attempts,
        concurrency=settings.concurrency,
        seed=seed,
    )


class SamplerChat:
    """A `Chat` on any sampler. A reply is one completion, which ends when the model ends its turn.

    A prompt is encoded as in the tag format: through the chat template, or without one a line for each message. If a
    prompt ends with <think>, the reply begins after it. A reply has up to `max_tokens` tokens, prompt and reply
    together up to `max_total_tokens`. Seed, key and messages determine it; `form` and `stop` have no effect.

    Do not share the sampler with rollouts that wait for this chat: once they hold all slots, no reply can begin.
    """

    is_local = True

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        *,
        max_tokens: int,
        max_total_tokens: int,
        temperature: float,
        seed: int,
    ) -> None:
        self.name = name
        self._sampler, self._tokenizer = sampler, tokenizer
        self._max_tokens, self._max_total_tokens = max_tokens, max_total_tokens
        self._temperature, self._seed = temperature, seed
        self._renderer = TagRenderer(tokenizer)
        self._stop = StopConditions(token_ids=self._renderer.stop.token_ids)
        self._under_way: set[str] = set()

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        key: str,
        form: Mapping[str, object] | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """Return the reply's text, without the token that ends it. Raises ToolError, also for a key in progress
        (CutReplyError for a cut reply, EmptyReplyError for an empty one); PolicyError for messages that the chat
        template refuses."""
        ids = self._renderer.render_prompt(messages)
        room = min(self._max_tokens, self._max_total_tokens - len(ids))
        if room < 1:
            raise self._failed(
                key,
                f"its prompt has {len(ids)} tokens, but prompt and reply may have {self._max_total_tokens} together. "
                "Shorten the prompt, or put the model behind an endpoint (base_url), which has its own limit.",
            )
        if key in self._under_way:
            raise self._failed(key, "a reply for this key is already being sampled. Give each call its own key.")
        self._under_way.add(key)
        try:
            completion = await self._sampler.sample(
                SampleRequest(key, 0, ids, room, self._temperature, self._stop, self._seed)
            )
        except SamplerError as error:
            raise self._failed(key, str(error)) from error
        finally:
            self._under_way.discard(key)
            self._sampler.release(key)
        text = self._text(completion.token_ids)
        written = _THINK + text if self._is_in_thought(ids) else text
        if completion.finish_reason == "length":
            what = (
                f"it did not end within {room} tokens. Raise "
                f"max_tokens ({self._max_tokens}; prompt and reply may have {self._max_total_tokens} together, and "
                f"the prompt took {len(ids)}), or ask for less in the prompt."
            )
            raise CutReplyError(str(self._failed(key, what)), written)
        if not text.strip():
            what = "it is empty. Ask for a reply in the prompt, or take another model."
            raise self._failed(key, what, EmptyReplyError)
        return written

    def _is_in_thought(self, prompt: Sequence[int]) -> bool:
        end = self._tokenizer.decode(
            list(prompt[-_END:]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(end).rstrip().endswith(_THINK)

    def _text(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion. The token that ends a turn need not be a special token."""
        ids = token_ids[:-1] if token_ids and token_ids[-1] in self._stop.token_ids else token_ids
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _failed(self, key: str, what: str, kind: type[ToolError] = ToolError) -> ToolError:
        return kind(f"There is no reply of the model {self.name!r} for {key!r}: {what}")
