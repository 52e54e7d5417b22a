"""Starts SkyRL's server as `python -m skyrl.tinker.api` does, by `serve.py api OPTIONS`, with four changes:

- Pydantic takes no `typing.TypedDict` before Python 3.12.
- The engine is started with this interpreter, by `serve.py engine`, not with `uv run`.
- The Llama gets biases in its attention, as the tiny policy has.
- Sequences are filled up to fewer lengths, for each of which the server compiles.
"""

# ruff: noqa: E402

import argparse
import sys
import typing

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict

import uvicorn
from skyrl.backends import jax
from skyrl.tinker import api, engine
from skyrl.tinker.config import EngineConfig, add_model, config_to_argv
from skyrl.tx.models import llama3
from skyrl.tx.utils import models

LENGTHS = (256, 384, 512, 2048)


class BiasedAttention(llama3.Llama3Attention):
    def __init__(self, *args, **options):
        plain = llama3.LoRALinear
        llama3.LoRALinear = lambda **given: plain(**given | {"use_bias": True})
        try:
            super().__init__(*args, **options)
        finally:
            llama3.LoRALinear = plain


def padded(length):
    return next(one for one in LENGTHS if length <= one)


def serve():
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int)
    given = vars(parser.parse_args())
    port = given.pop("port")
    api.app.state.engine_config = EngineConfig.model_validate(given)
    api._build_uv_run_cmd_engine = lambda parent, config: [sys.executable, __file__, "engine", *config_to_argv(config)]
    api.app.add_api_route("/health", api.healthz)
    uvicorn.run(api.app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    llama3.Llama3Attention = BiasedAttention
    jax.round_up_seq_len = models.round_up_seq_len = padded
    part = sys.argv.pop(1)
    serve() if part == "api" else engine.main()
