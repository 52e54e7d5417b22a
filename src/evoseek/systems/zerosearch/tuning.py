"""Tuning a model into a simulated search engine: supervised learning on labelled searches (ZeroSearch, arXiv
2505.04588, section 3.2).

    for step = 1 .. steps:
        a batch of records, useful and noisy ones by turns, each kind in a separate order that every epoch shuffles
        prompt = the simulator's, for useful or noisy documents by the record's label one optimizer step on the
        cross-entropy of the reply: the documents that the real engine gave, and the end

The records, the seed and the step determine everything.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedTokenizerBase

from evoseek.assembly.inputs import inputs_of
from evoseek.chat.chats import LONGEST
from evoseek.config.registry import build
from evoseek.errors import ConfigError, DataError, ReplyError
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.base import LossInputs
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.models.load import export_policy
from evoseek.models.policy import Policy, prompts_of
from evoseek.renderers.encoding import TextEncoder
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.prompts import PromptSet, load_prompts
from evoseek.storage.checkpoints import Checkpoint
from evoseek.storage.files import check_new
from evoseek.storage.runs import RunDirectory, with_digests
from evoseek.systems.zerosearch.engine import parse_documents, simulator_messages, simulator_reply, write_card
from evoseek.systems.zerosearch.searches import SearchRecord, document_texts, load_records
from evoseek.systems.zerosearch.system import ZeroSearch
from evoseek.text.printable import say
from evoseek.text.progress import STOPPING, LiveProgress
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.supervised import SupervisedRun
from evoseek.training.trainer import load_trainable
from evoseek.types import TrainingSample


class ExampleMaker:
    """A maker of training examples from records: a prompt as in `SamplerChat`, and a reply of `documents` documents.

    `max_length` is the model's longest example in tokens. Raises ConfigError for a tokenizer without an end token, with
    which no reply would ever end.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompts: PromptSet,
        *,
        documents: int,
        max_words: int,
        max_length: int,
    ) -> None:
        self._renderer = TagRenderer(tokenizer)
        if not self._renderer.stop.token_ids:
            raise ConfigError(
                "The tokenizer of the model to tune has no end token, so its replies would never end. Use a model "
                "whose tokenizer has an eos_token."
            )
        self._tokenizer, self._encoder, self._prompts = tokenizer, TextEncoder(tokenizer), prompts
        self._documents, self._max_words, self._max_length = documents, max_words, max_length

    def problem(self, record: SearchRecord) -> str | None:
        """Return why a record cannot be an example ("that have ..."); None if it can."""
        if len(record.passages) < self._documents:
            return f"that have fewer than {self._documents} passages"
        if len(self.make(record).token_ids) > self._max_length:
            return f"that come to more than {self._max_length} tokens"
        written = self._tokenizer.decode(
            list(self._reply(record)), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        try:
            parse_documents(str(written), self._documents, self._max_words)
        except ReplyError:
            return "whose documents, in a reply, could not be separated"
        return None

    def make(self, record: SearchRecord) -> TrainingSample:
        """Make the example of a labelled record; the loss covers the reply and its end token."""
        messages = simulator_messages(
            self._prompts,
            record.question,
            record.query,
            record.earlier,
            useful=record.useful is True,
            documents=self._documents,
            max_words=self._max_words,
        )
        prompt = self._renderer.render_prompt(messages)
        reply = (*self._reply(record), self._renderer.stop.token_ids[0])
        zeros = (0.0,) * (len(prompt) + len(reply))
        return TrainingSample((*prompt, *reply), (False,) * len(prompt) + (True,) * len(reply), zeros, zeros)

    def _reply(self, record: SearchRecord) -> tuple[int, ...]:
        return self._encoder.outside(simulator_reply(document_texts(record, self._documents, self._max_words)))


@dataclass(frozen=True, slots=True)
class TuningData:
    """Usable records by label, and counts of problems of the others."""

    make: Callable[[SearchRecord], TrainingSample]
    useful: Sequence[SearchRecord]
    noisy: Sequence[SearchRecord]
    left_out: Mapping[str, int]

    @classmethod
    def of(cls, records: Sequence[SearchRecord], maker: ExampleMaker) -> TuningData:
        """Sort records. Raises DataError for a record without a label, or if a kind is missing."""
        kept: dict[bool, list[SearchRecord]] = {True: [], False: []}
        left_out: Counter[str] = Counter()
        for number, record in enumerate(records, start=1):
            if record.useful is None:
                raise DataError(
                    f"Search number {number} ({record.query!r}) has no label. Label the file first: `evoseek "
                    "simulator label`."
                )
            problem = maker.problem(record)
            if problem is None:
                kept[record.useful].append(record)
            else:
                left_out[problem] += 1
        for useful, name in ((True, "useful"), (False, "noisy")):
            if not kept[useful]:
                raise DataError(_none_of_a_kind(name, len(records), left_out))
        return cls(maker.make, kept[True], kept[False], left_out)

    def batches(self, seed: int, tokens_per_step: int) -> Iterator[list[TrainingSample]]:
        """Yield the batches of step 1, 2, ...: as many examples as needed for `tokens_per_step` tokens."""
        pools = {"useful": self.useful, "noisy": self.noisy}
        streams = [_endless(records, f"{seed}/tuning/{name}") for name, records in pools.items()]
        drawn = map(self.make, chain.from_iterable(zip(*streams, strict=True)))
        while True:
            batch = [next(drawn)]
            while sum(len(sample.token_ids) for sample in batch) < tokens_per_step:
                batch.append(next(drawn))
            yield batch


def _endless(records: Sequence[SearchRecord], purpose: str) -> Iterator[SearchRecord]:
    epoch = 0
    while True:
        yield from random.Random(f"{purpose}/{epoch}").sample(records, len(records))
        epoch += 1


def _none_of_a_kind(name: str, count: int, left_out: Mapping[str, int]) -> str:
    reasons = ", ".join(f"left out: {number} {problem}" for problem, number in left_out.items()) or "none left out"
    return (
        f"None of the {count} searches can be a {name} example ({reasons}), but both kinds are needed. Collect more "
        "searches (--pages 2 gives later results, which are seldom useful), or set search.top_k to the number of "
        "passages that were collected and simulator.max_words to their length."
    )


def begin_tuning(
    settings: ZeroSearch.Settings, records: Path, work: Path, *, steps: int, tokens_per_step: int
) -> SupervisedRun:
    """Begin to tune the policy of the settings to a simulator, or resume from the last checkpoint in `work`.

    Raises ConfigError, also for `work` with other settings or records.
    """
    tables = with_digests(settings.resolved(), inputs_of(settings))
    recipe = {
        "records": sha256(records.read_bytes()).hexdigest(),
        "steps": steps,
        "tokens_per_step": tokens_per_step,
        "documents": settings.search.top_k,
        "max_words": settings.simulator.max_words,
        "prompts": settings.policy.prompts,
        "seed": settings.run.seed,
        **{section: tables[section] for section in ("policy", "lora", "learner")},
    }

    def load(checkpoint: Checkpoint | None) -> Policy:
        return load_trainable(settings, checkpoint, device=settings.policy.device)

    def learner(policy: Policy) -> Learner[LossInputs]:
        """Make a learner whose learning rate falls to 0 at the last step."""
        context = LearnerContext(
            LogprobModel(policy.model), CrossEntropyLoss(), total_steps=steps, active=policy.active
        )
        return build("learner", settings.learner, context)

    return SupervisedRun.begin(work, json.dumps(recipe, indent=1, sort_keys=True), load, learner)


def tune_simulator(
    settings: ZeroSearch.Settings,
    source: Path,
    directory: Path,
    work: Path,
    *,
    steps: int,
    tokens_per_step: int,
    console: Console,
) -> bool:
    """Tune the settings' policy on labelled searches, or resume this, and write it as a plain model with merged
    adapter.

    Returns False if Ctrl-C ended it. Raises EvoseekError.
    """
    check_new(directory)
    records = load_records(source, notify=lambda text: say(console, text))
    with (
        RunDirectory(work).locked(),
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        LiveProgress(console, "step") as bar,
    ):
        run = begin_tuning(settings, source, work, steps=steps, tokens_per_step=tokens_per_step)
        longest = getattr(run.policy.model.config.get_text_config(), "max_position_embeddings", LONGEST)
        maker = ExampleMaker(
            run.policy.tokenizer,
            load_prompts(prompts_of(run.policy, settings.policy.prompts)),
            documents=settings.search.top_k,
            max_words=settings.simulator.max_words,
            max_length=int(longest),
        )
        data = TuningData.of(records, maker)
        for problem, count in data.left_out.items():
            say(console, f"Left out: {count} searches {problem}.")
        say(
            console, f"Tuning on {len(data.useful)} useful and {len(data.noisy)} noisy searches, after step {run.step}."
        )

        def watch(step: int, loss: float) -> None:
            bar.show(step, steps, f"loss {loss:.4f}")

        batches = islice(data.batches(settings.run.seed, tokens_per_step), run.step, None)
        finished = run.train(batches, steps, progress=watch, should_stop=interrupted)
    if finished:
        export_policy(run.policy, directory)
        write_card(directory, top_k=settings.search.top_k, max_words=settings.simulator.max_words)
    say(console, f"Written to {directory}." if finished else "Stopped. The same command resumes from there.")
    return finished
