"""The environment in verifiers: the rewards are those of `evoseek eval`, and a failure is an error."""

import asyncio
import json
import subprocess
import sys

import pytest
import verifiers.v1 as vf
from pydantic import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner
from verifiers.v1.serve import EnvClient, EnvServer
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from evoseek.cli.main import app

SEARCH = "<search> the capital of {} </search>"
ANSWER = "<answer> {} </answer>"
REPLIES = {
    "Austria": [SEARCH.format("Austria"), ANSWER.format("Vienna")],
    "Brazil": [ANSWER.format("Rio")],
    "Canada": [SEARCH.format("Canada") + " <information> Toronto </information>", ANSWER.format("Ottawa")],
    "Denmark": ["I do not know."],
    "Egypt": ["<search> on and on"],
    "France": [SEARCH.format("France")] * 5 + [ANSWER.format("Paris")],
    "Greece": [""],
}
REWARDS = {"Austria": 1.0, "Brazil": 0.0, "Canada": 1.0, "Denmark": 0.0, "Egypt": 0.0, "France": 1.0, "Greece": 0.0}


def rewards(traces):
    return {
        name: {key: reward and reward.score for key, reward in trace.rewards.items()} for name, trace in traces.items()
    }


def test_the_rewards_are_those_of_an_evaluation_of_the_same_replies(run, model, world, tmp_path):
    """But for an empty reply, which is a failure where an endpoint is examined, and here is the policy's own doing."""
    traces = run(REPLIES)
    settings = [f"answerer.base_url={model.url}/v1", "answerer.model=scripted"]
    words = ["eval", "--questions", str(world / "questions.jsonl"), "--index", str(world / "index")]
    words += [word for setting in settings for word in ("--set", setting)]
    evaluated = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert evaluated.exit_code == 0, evaluated.output
    samples = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    by_evoseek = {sample["question"]: sample["scores"].get("exact_match") for sample in samples}
    assert by_evoseek == {**REWARDS, "Greece": None}
    assert rewards(traces) == {name: {"exact_match": value} for name, value in REWARDS.items()}
    greece = traces.pop("Greece")
    assert (greece.ok, greece.info["evoseek"]["stop_reason"]) == (True, "malformed")
    for sample in samples:
        if sample["question"] == "Greece":
            continue
        trace = traces[sample["question"]]
        assert trace.ok == (sample["invalid"] is None)
        assert trace.info["evoseek"]["stop_reason"] == sample["stop_reason"]
        if trace.ok:
            assert (trace.metrics["searches"], trace.info["evoseek"]["answer"]) == (sample["calls"], sample["answer"])


def test_a_trace_holds_what_the_model_was_sent_and_what_is_cut_from_a_reply_begins_another_branch(run, model):
    traces = run({name: REPLIES[name] for name in ("Austria", "Canada")})
    (branch,) = traces["Austria"].branches
    assert [message.role for message in branch.messages] == ["user", "assistant", "user", "assistant"]
    assert "The capital of Austria is Vienna." in branch.messages[2].content
    last = next(body for body in model.bodies if len(body["messages"]) == 3 and "Austria" in str(body))
    assert [message["content"] for message in last["messages"]] == [m.content for m in branch.messages[:3]]
    assert not {"temperature", "seed"} & last.keys()
    first, second = traces["Canada"].branches
    assert first.messages[1].content == REPLIES["Canada"][0]
    assert second.messages[1].content == SEARCH.format("Canada")


def test_a_model_that_fails_is_an_error_and_no_reward(run):
    (trace,) = run({"Austria": [SEARCH.format("Austria"), 401]}).values()
    assert (trace.ok, trace.rewards, [e.type for e in trace.errors]) == (False, {}, ["ProviderError"])


def test_a_rollout_that_waits_for_too_long_is_an_error_and_no_reward(run):
    (trace,) = run({"Austria": [(2.0, ANSWER.format("Vienna"))]}, settings=["rollout.deadline_s=0.2"]).values()
    assert (trace.ok, trace.rewards, trace.errors[0].type) == (False, {}, "HarnessError")
    assert "deadline" in trace.errors[0].message


BROKEN = """
from evoseek.errors import ToolError

class Engine:
    is_local = True
    async def search(self, queries, k):
        raise ToolError("The disk is gone.")

async def reward(trajectory):
    raise ToolError("The judge is asleep.")
"""


@pytest.fixture
def broken(tmp_path, monkeypatch):
    (tmp_path / "broken_parts.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("broken")
def test_an_engine_that_fails_is_an_error_and_no_reward(run):
    (trace,) = run({"Austria": REPLIES["Austria"]}, settings=["search.name=broken_parts:Engine"]).values()
    assert (trace.ok, trace.rewards, trace.errors[0].type) == (False, {}, "ToolsetError")
    assert "tool_failed" in trace.errors[0].message
    assert "The disk is gone." in trace.errors[0].message


@pytest.mark.usefixtures("broken")
def test_a_reward_that_fails_is_an_error_and_no_reward(run):
    (trace,) = run({"Austria": REPLIES["Austria"]}, reward="broken_parts:reward").values()
    assert (trace.ok, trace.rewards, trace.errors[0].type) == (False, {"evoseek": None}, "TaskError")
    assert "The judge is asleep." in trace.errors[0].message


@pytest.mark.parametrize(
    ("limit", "most", "reason"),
    [
        ("max_turns", 1, "max_turns"),
        ("max_input_tokens", 10, "max_tokens"),
        ("max_output_tokens", 5, "max_tokens"),
        ("max_total_tokens", 15, "max_tokens"),
    ],
)
def test_a_limit_of_verifiers_ends_a_rollout_without_an_answer(run, limit, most, reason):
    (trace,) = run({"Austria": REPLIES["Austria"]}, agent={limit: most}).values()
    assert (trace.ok, trace.stop_condition, rewards({"": trace})[""]) == (True, limit, {"exact_match": 0.0})
    assert trace.info["evoseek"]["stop_reason"] == reason


def test_a_timeout_of_verifiers_is_an_error(run):
    (trace,) = run({"Austria": [None]}, agent={"timeout": {"rollout": 0.2}}).values()
    assert (trace.ok, trace.is_timeout, trace.rewards) == (False, True, {"evoseek": None})


def test_arguments_and_a_system_prompt_reach_the_model(run, model, tmp_path):
    (tmp_path / "system.txt").write_text("Be brief.")
    taskset = {"reward": "f1", "max_calls": 0, "prompts": "short", "system_prompt": str(tmp_path / "system.txt")}
    (trace,) = run({"Austria": [SEARCH.format("Austria"), ANSWER.format("Vienna city")]}, **taskset).values()
    assert rewards({"": trace})[""] == {"f1": pytest.approx(2 / 3)}
    assert model.bodies[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert trace.metrics["searches"] == 0


@pytest.fixture
def tokenizer(tmp_path):
    """One token a byte, and the two of the chat template."""
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(characters)}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    wrapped.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    wrapped.save_pretrained(tmp_path / "tokenizer")
    return PreTrainedTokenizerFast.from_pretrained(tmp_path / "tokenizer"), tmp_path / "tokenizer"


def test_a_training_sample_is_token_for_token_what_the_engine_was_given_and_gave(run, model, tokenizer):
    model.tokenizer, path = tokenizer
    client = vf.TrainClientConfig(
        base_url=f"{model.url}/v1", renderer_model_name=str(path), renderer={"name": "default"}
    )
    (trace,) = run({"Austria": REPLIES["Austria"]}, client=client).values()
    assert trace.errors == []
    assert rewards({"": trace})[""] == {"exact_match": 1.0}
    (branch,) = trace.branches
    sampled = [token for token, is_own in zip(branch.token_ids, branch.sampled_mask, strict=True) if is_own]
    given = [[*model.tokenizer.encode(reply), model.tokenizer.eos_token_id] for reply in REPLIES["Austria"]]
    assert sampled == [*given[0], *given[1]]
    first, second = (body["token_ids"] for body in model.bodies)
    assert second[: len(first) + len(given[0])] == [*first, *given[0]]
    assert branch.token_ids == [*second, *given[1]]


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"reward": "exact_mach"}, r"Did you mean exact_match\?"),
        ({"questions": "nowhere.jsonl"}, r"question file nowhere\.jsonl cannot be read"),
        ({"settings": ["rollout.max_trns=3"]}, r"unknown setting rollout\.max_trns"),
        ({"index": None}, r"No index was given: set index \(evaluation\.index\)"),
        ({"questions": None}, r"It was given what is searched \(.*/index\), but no questions"),
    ],
)
def test_a_mistake_in_the_arguments_is_a_problem_of_the_config(given, mistake, said):
    taskset = {key: value for key, value in {**given, **mistake}.items() if value is not None}
    with pytest.raises(ValidationError, match=said):
        resolve_env_config({"taskset": {"id": "evoseek-verifiers", **taskset}})


def test_a_mistake_in_the_arguments_is_told_without_a_traceback(tmp_path):
    words = ["evoseek-verifiers", "--env.taskset.reward", "exact_mach", "-o", tmp_path, "--no-push", "--no-rich"]
    done = program("eval.main", *words)
    assert done.returncode == 1
    assert "Did you mean exact_match?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def program(name, *words):
    code = f"from verifiers.v1.cli.{name} import main; main()"
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True)


def called(name, *words):
    done = program(name, *words)
    assert done.returncode == 0, done.stderr


def scores(directory):
    """The rewards of the traces that a program wrote."""
    rows = [json.loads(line) for line in (directory / "traces.jsonl").read_text().splitlines()]
    traces = [trace for row in rows for trace in row.get("traces", [row])]
    return [{name: reward["score"] for name, reward in trace["rewards"].items()} for trace in traces]


def test_it_is_found_by_name_and_by_default_asks_about_a_generated_world(model, tmp_path):
    model.replies = {"": [ANSWER.format("nobody")]}
    words = ["evoseek-verifiers", "-n", 2, "-m", "scripted", "--client.base-url", f"{model.url}/v1"]
    words += ["--env.taskset.world-questions", 5, "--no-push", "--no-rich", "-o", tmp_path, "--run.dir", "first"]
    called("eval.main", *words)
    assert scores(tmp_path / "first") == [{"exact_match": 0.0}] * 2
    called("replay", tmp_path / "first", "--no-rich", "--output-dir", tmp_path / "again")
    assert scores(tmp_path / "again") == [{"exact_match": 0.0}] * 2


def test_a_server_of_environments_runs_a_task_that_it_is_sent(model, given):
    """As a trainer has it: tasks are loaded in one process and run in another."""
    model.replies = {"Austria": REPLIES["Austria"]}
    config = resolve_env_config({"taskset": {"id": "evoseek-verifiers", **given}})
    endpoint = vf.EvalClientConfig(base_url=f"{model.url}/v1")

    async def served(data):
        server = EnvServer(config, "tcp://127.0.0.1:0")
        running, client = asyncio.create_task(server.run()), EnvClient(server.address)
        try:
            return await client.run(endpoint, "scripted", vf.SamplingConfig(), data)
        finally:
            await client.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    task = next(iter(load_environment(config).taskset))
    assert task.data.metadata == {"hops": 1}
    episode = asyncio.run(served(task.data.model_dump(mode="json")))
    (trace,) = episode.traces
    assert (episode.ok, rewards({"": trace})) == (True, {"": {"exact_match": 1.0}})
    assert trace.info["evoseek"]["answer"] == "Vienna"
