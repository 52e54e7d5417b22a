"""A server of SGLang on the loopback: a test double that replies as SGLang documents it (see `engines`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.doubles.engines import ScriptedServer, Turn

from evoseek.types import SampleRequest, StopConditions
from evoseek.world.server import Response


class ScriptedSGLang(ScriptedServer):
    """Replies as `sglang.launch_server` with adapters. `weight_version` is the name of the weights, as it was given."""

    newest = "0.5.23"
    weight_version = "default"
    _paused = False

    def is_turn(self, path: str, body: Any) -> bool:
        """A completion of ids, of a model that there is."""
        is_known = body.get("lora_path") in (None, *self.adapters)
        return path == "/generate" and "top_logprobs_num" not in body and is_known

    def model_of(self, body: Mapping[str, Any]) -> str:
        """An adapter, or the model by the name of its weights."""
        return str(body.get("lora_path") or self.weight_version)

    async def reply(self, path: str, body: Any) -> Response:
        """Everything but turns."""
        match path:
            case "/server_info":
                return Response.of_json({"version": self.version, "internal_states": []})
            case "/v1/models":
                return self.listed()
            case "/generate" if "top_logprobs_num" in body:
                return self._top(body)
            case "/generate":
                return _refused(f"The following requested LoRA adapters are not loaded: {body['lora_path']}")
            case "/load_lora_adapter":
                return self._load_adapter(str(body["lora_name"]), Path(body["lora_path"]))
            case "/unload_lora_adapter":
                known = self.adapters.pop(body["lora_name"], None) is not None
                return Response.of_json({"success": known}, 200 if known else 400)
            case "/update_weights_from_disk":
                return self._update(Path(body["model_path"]), str(body["weight_version"]))
            case "/pause_generation" | "/continue_generation":
                self._paused = path.startswith("/pause")
                return Response.of_json({"message": "Generation paused or continued.", "status": "ok"})
            case _:
                return Response.of_json({"detail": "Not Found"}, 404)

    def asked(self, body: Mapping[str, Any], trajectory_id: str) -> SampleRequest:
        """A completion."""
        asked = body["sampling_params"]
        ids, most, temperature = tuple(body["input_ids"]), int(asked["max_new_tokens"]), float(asked["temperature"])
        most = min(most, self.max_length - 2 - len(ids))
        stop = StopConditions(tuple(asked["stop"]), () if asked["ignore_eos"] else tuple(asked["stop_token_ids"]))
        return SampleRequest(trajectory_id, 0, ids, most, temperature, stop, 0)

    def interval_of(self, body: Mapping[str, Any]) -> int:
        """One of the parameters of sampling."""
        return int(body["sampling_params"]["stream_interval"])

    def said(self, turn: Turn, start: int, end: int) -> dict[str, Any]:
        """A completion up to an end: every event repeats the earlier ones."""
        is_last = end == len(turn.token_ids)
        meta = {
            "id": "0",
            "finish_reason": {"type": turn.finish_reason} if is_last else None,
            "prompt_tokens": len(turn.prompt_ids),
            "weight_version": self.weight_version if turn.model in self.adapters else turn.model,
            "completion_tokens": end,
            "output_token_logprobs": [
                [logprob, token, None] for logprob, token in zip(turn.logprobs[:end], turn.token_ids, strict=False)
            ],
        }
        return {"text": "", "output_ids": turn.token_ids[:end], "meta_info": meta}

    def _top(self, body: Mapping[str, Any]) -> Response:
        top = self.top(body["sampling_params"]["temperature"])
        entries = [[logprob, token, None] for token, logprob in enumerate(top)]
        return Response.of_json({"text": "", "output_ids": [0], "meta_info": {"output_top_logprobs": [entries]}})

    def _load_adapter(self, name: str, path: Path) -> Response:
        wrong = f"LoRA with name {name} already exists. Loaded LoRAs: {name}" if name in self.adapters else ""
        if not path.is_dir():
            wrong = f"Failed to load LoRA adapter {name}: there is no {path}"
        if not wrong:
            self.load(path, name)
        loaded = {"success": not wrong, "error_message": wrong, "loaded_adapters": list(self.adapters)}
        return Response.of_json(loaded, 400 if wrong else 200)

    def _update(self, path: Path, version: str) -> Response:
        if not self._paused:
            return _refused("The cache could not be flushed: generation is not paused.")
        self.load(path)
        self.weight_version = version
        said = "Succeeded to update model weights."
        return Response.of_json({"success": True, "message": said, "num_paused_requests": 0})


def _refused(what: str) -> Response:
    return Response.of_json({"error": {"message": what, "code": 400}}, 400)
