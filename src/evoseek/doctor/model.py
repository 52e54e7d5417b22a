"""The model's files, whether tokenizer and weights belong together, its chat template, and the prompt that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient
from evoseek.errors import EvoseekError
from evoseek.files import expanded
from evoseek.jobs.prompt import rendered
from evoseek.policy.load import load_tokenizer
from evoseek.policy.shape import read_config
from evoseek.policy.source import find_policy, is_gguf
from evoseek.policy.template_check import check_template
from evoseek.settings import lookup

_WEIGHTS = ("*.safetensors", "adapter_model.safetensors", "remote.json")
_LONG = 0.5  # share of a rollout's tokens


def check_model(patient: Patient) -> Iterator[Finding]:
    """Files, tokenizer, template and prompt; what needs a missing one is left out."""
    name = patient.settings.policy.model
    if not patient.has_model:
        if expanded(name).is_absolute() or name.startswith((".", "~")):
            yield fault("model", f"There is no model at {name}.", "Correct policy.model.")
        else:
            words = f"{name} is not on this machine, so it is looked for on the Hugging Face hub when it is needed."
            yield warning("model", words, "Correct policy.model, or download the model first.")
        return
    yield from _files(name)
    try:
        tokenizer = load_tokenizer(name)
    except EvoseekError as error:
        yield refused("tokenizer", error)
        return
    vocabulary = lookup_size(read_config(name))
    if vocabulary and len(tokenizer) > vocabulary:
        words = f"The tokenizer has {len(tokenizer):,} tokens, but the model's vocabulary {vocabulary:,}."
        yield fault("tokenizer", words, "Give a directory whose tokenizer and weights were saved together.")
    yield from _template(patient, tokenizer)
    yield from _prompts(patient)


def lookup_size(config: object) -> int:
    """The vocabulary in a model's config; 0 if it does not say."""
    found = dict(config) if isinstance(config, dict) else {}
    inner = found.get("text_config")
    size = (inner if isinstance(inner, dict) else found).get("vocab_size")
    return size if isinstance(size, int) else 0


def _files(name: str) -> Iterator[Finding]:
    source = expanded(find_policy(name))
    if source.is_dir() and not is_gguf(name) and not any(any(source.glob(pattern)) for pattern in _WEIGHTS):
        words = f"{source} holds no weights in safetensors; others are not read."
        yield fault("model", words, "Save the model with save_pretrained (safe_serialization), or download it again.")
    else:
        yield fine("model", f"{name}" + ("" if str(source) == name else f" ({source})"))


def _template(patient: Patient, tokenizer: object) -> Iterator[Finding]:
    own = patient.settings.policy
    try:
        report = check_template(tokenizer, own.format)  # pyright: ignore[reportArgumentType]
    except EvoseekError as error:
        yield refused("chat template", error)
        return
    if report.has_template and report.call_format is None and own.format == "auto":
        words = f"{report} The tag format is used instead."
        yield warning("chat template", words, "Set policy.format=tags to say so, or give a model with tool calls.")
    else:
        yield fine("chat template", str(report))


def _prompts(patient: Patient) -> Iterator[Finding]:
    """The length of the solver's prompt for an example, of a proposer's too, against the longest rollout."""
    settings = patient.settings
    for role in ("solver", "proposer") if lookup(settings, "proposer") is not None else ("solver",):
        try:
            shown = rendered(settings, role, "")
        except EvoseekError as error:
            yield refused("prompt", error)
            continue
        longest = settings.rollout.max_total_tokens
        words = f"{role}: {shown.tokens} of {longest} tokens, format {shown.format} (`evoseek prompt --role {role}`)"
        if shown.tokens >= longest:
            yield fault("prompt", f"No room for an answer: {words}.", "Raise rollout.max_total_tokens.")
        elif shown.tokens > _LONG * longest:
            yield warning("prompt", words, "Raise rollout.max_total_tokens, or set policy.prompts=short.")
        else:
            yield fine("prompt", words)
