"""Small tokenizers of the common kinds, trained on a few lines; control tokens and templates are as in known models."""

import os
from functools import partial

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from evoseek.errors import PolicyError
from evoseek.models.load import load_tokenizer

LINES = [
    "1 < 2 > 0 / what is the capital of France ? the capital of France is Paris .",
    "search for the mayor of Kalo . the mayor of Kalo is Meri . information answer think question",
    '{"name": "search", "arguments": {"query": "mayor of Kalo"}} user assistant system tool ipython',
]
TAGS = [
    form.format(tag) for tag in ("search", "information", "think", "answer", "question") for form in ("<{}>", "</{}>")
]

QWEN_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\nReturn <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- set content = KEEP %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant' }}
{%- if content %}{{- '\\n' + content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
"""Like Qwen2.5: calls between tags, consecutive results in one user turn. `KEEP` is the content as it is or cut."""

LLAMA_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' and loop.first and tools %}
{{- '<|start_header_id|>user<|end_header_id|>\\n\\nYou have these functions:\\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
{{- message.content | trim + '<|eot_id|>' }}
{%- elif message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
{%- set function = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + function.name + '", "parameters": ' }}
{{- function.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- elif message.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (message.content | tojson) + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
"""Like Llama 3: bare JSON calls without the text beside them, results as JSON strings under `ipython`."""


def byte_level(special: list[str], added: list[AddedToken], **tokens: str) -> PreTrainedTokenizerFast:
    engine = Tokenizer(models.BPE())
    engine.normalizer = normalizers.NFC()
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    engine.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    engine.add_tokens(added)
    return PreTrainedTokenizerFast(tokenizer_object=engine, **tokens)


def qwen(content: str = "message.content or ''") -> PreTrainedTokenizerFast:
    """Byte-level BPE; tool tags are added tokens that are not special, as in Qwen."""
    tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    made = byte_level(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "☞"],
        [AddedToken(tag, special=False, normalized=False) for tag in tags],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    made.chat_template = QWEN_TEMPLATE.replace("KEEP", content)
    return made


def qwen_forgetful() -> PreTrainedTokenizerFast:
    """Its template drops the reasoning of every earlier turn, as Qwen3 and R1 do."""
    return qwen("(message.content or '').split('</think>')[-1]")


def qwen_thinking() -> PreTrainedTokenizerFast:
    """Its template opens the reasoning itself, as R1's does."""
    made = qwen()
    turns, opening = made.chat_template.rsplit("<|im_start|>assistant\\n", 1)
    turns = turns.replace("<|im_start|>assistant", "<|im_start|>assistant\\n<think>\\n</think>\\n")
    made.chat_template = f"{turns}<|im_start|>assistant\\n<think>\\n{opening}"
    return made


def smollm2() -> PreTrainedTokenizerFast:
    """Byte-level BPE whose unknown token is the control token that ends a document, as in SmolLM2."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    made = byte_level(names, [], unk_token=names[0], bos_token=names[1], eos_token=names[2], pad_token=names[2])
    made.chat_template = QWEN_TEMPLATE.replace("KEEP", "message.content or ''")
    return made


def real(model: str) -> PreTrainedTokenizerFast:
    """A model's own tokenizer; the test is skipped where it is not on this machine."""
    try:
        return load_tokenizer(model)
    except PolicyError as error:
        pytest.skip(f"No tokenizer of {model} on this machine: {error}")


def llama() -> PreTrainedTokenizerFast:
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    names.append("<|eom_id|>")  # which only the model's generation settings name
    made = byte_level(names, [], bos_token=names[0], eos_token=names[1])
    made.chat_template = LLAMA_TEMPLATE
    return made


def base() -> PreTrainedTokenizerFast:
    """A base model: no template, no tag in the vocabulary, a begin-of-text token put before every text."""
    made = byte_level(["<s>", "</s>"], [], bos_token="<s>", eos_token="</s>")
    bos = made.bos_token_id
    made.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", bos)])
    return made


def wordpiece() -> PreTrainedTokenizerFast:
    """Lower-cases, strips accents and widths; its tags are matched after that and swallow the space around them."""
    engine = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(cleanup=False)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    engine.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    )
    engine.add_tokens([AddedToken(t, special=False, normalized=True, lstrip=True, rstrip=True) for t in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=engine, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", eos_token="[SEP]"
    )


def words() -> PreTrainedTokenizerFast:
    """Splits at white space only, and has its control tokens in the plain vocabulary, where text can meet them."""
    pieces = ["<unk>", "<eos>", "<ctl>", *TAGS, *dict.fromkeys(" ".join(LINES).split())]
    engine = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    engine.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(["<eos>", "<ctl>"])
    engine.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="<unk>", eos_token="<eos>")


def sentencepiece() -> PreTrainedTokenizerFast:
    """Unigram over a metaspace, with the control tokens as pieces of the model, as SentencePiece models have them."""
    engine = Tokenizer(models.Unigram())
    engine.normalizer = normalizers.NFKC()
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<start_of_turn>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False)
    engine.train_from_iterator(LINES, trainer)
    engine.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("\n", "\n\n", "<b>")])
    return PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


MAKERS = {
    "qwen": qwen,
    "qwen_forgetful": qwen_forgetful,
    "qwen_thinking": qwen_thinking,
    "smollm2": smollm2,
    "llama": llama,
    "base": base,
    "wordpiece": wordpiece,
    "words": words,
    "sentencepiece": sentencepiece,
    "real smollm2": partial(real, "smollm2-135m"),
    "real qwen": partial(real, os.environ.get("EVOSEEK_TEST_QWEN", "Qwen/Qwen2.5-0.5B-Instruct")),
}
