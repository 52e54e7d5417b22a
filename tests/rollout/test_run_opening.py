"""Rollouts whose prompt has what a search for the question finds."""

import asyncio
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import OpeningEnvironment
from evoseek.renderers.encoding import plain
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.rollout.environments import HistoryEnv, SearchFirstEnv, SolverEnv, after
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.record import TrajectoryRecord, record_of, row_of
from evoseek.rollout.roller import Roller, nothing_found, score
from evoseek.rollout.run import converse, run_trajectory
from evoseek.rollout.settings import EnvironmentContext, EnvironmentSettings
from evoseek.rollout.tools import SearchTool
from evoseek.types import Invalid, Message, Passage, Question, Scored, StopReason

ASKED = Question("q", "who is the mayor of Kalo ?", ("Meri",))
KALO, NIDA, SORO = (
    Passage(f"{name}#0", name, name.title(), f"The mayor of {name} is {mayor}.")
    for name, mayor in (("kalo", "Meri"), ("nida", "Ada"), ("soro", "Ivo"))
)


class Engine:
    """Finds the first k passages for every query; down for the query `fails`."""

    def __init__(self, *passages):
        self.passages, self.queries = passages, []

    async def search(self, queries, k):
        self.queries += queries
        if "fails" in queries:
            raise ToolError("the engine is down")
        return [list(self.passages[:k]) for _ in queries]


def environment(engine, format="tags", k=3):
    tool = SearchTool(engine, k, template=load_prompts("default")["observation"])
    return SearchFirstEnv([tool], load_prompts("default"), format, max_calls=4)


def roll(stage, engine, *turns, question=ASKED, env=None, k=3, **limits):
    sampler = stage.sampler({"q/0": turns})
    setting = stage.setting(sampler, **{"max_total_tokens": 3000, **limits})
    setting["env"] = env or environment(engine, stage.renderer.format, k)
    return asyncio.run(run_trajectory(question, trajectory_id="q/0", **setting)), sampler


def decoded(stage, trajectory, number=0):
    return stage.tokenizer.decode(list(trajectory.segments[number].token_ids))


@pytest.mark.parametrize("name", ["tags", "tools", "chat_tags"])
def test_the_question_is_searched_before_the_first_turn_and_no_token_of_it_is_the_policys(request, name):
    stage, engine = request.getfixturevalue(name), Engine(KALO, NIDA)
    trajectory, sampler = roll(stage, engine, "Meri<|im_end|>" if name != "tags" else "Meri")
    assert engine.queries == [ASKED.text]
    assert [result.passages for result in trajectory.opening] == [(KALO, NIDA)]
    assert (trajectory.tool_results, trajectory.passages) == ((), (KALO, NIDA))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Meri")
    assert [segment.kind for segment in trajectory.segments] == ["prompt", "action"]
    prompt = decoded(stage, trajectory).lower()
    assert "the mayor of kalo is meri" in prompt
    assert "the mayor of nida is ada" in prompt
    assert sampler.requests[0].token_ids == trajectory.segments[0].token_ids
    assert trajectory.loss_mask.count(True) == len(sampler.completions[0].token_ids)


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("Meri<|im_end|>", "Meri"),
        ("<answer> Meri </answer>", "Meri"),
        ("<answer> Meri<|im_end|>", "Meri"),
        ("<think> the first one </think> Meri Vesu.<|im_end|>", "Meri Vesu."),
        ("Meri </answer>", "Meri"),
        ("It is <answer> Meri<|im_end|>", "Meri"),
    ],
)
def test_a_turn_without_a_call_is_the_answer(chat_tags, written, answer):
    trajectory, _ = roll(chat_tags, Engine(KALO), written)
    assert (trajectory.answer, trajectory.actions[0].problem) == (answer, None)


@pytest.mark.parametrize("written", ["<search> mayor<|im_end|>", "<|im_end|>", "", "<think> </think> .<|im_end|>"])
def test_a_call_that_is_not_closed_and_an_empty_turn_are_no_answers(chat_tags, written):
    trajectory, _ = roll(chat_tags, Engine(KALO), written)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MALFORMED, None)


def test_a_turn_that_was_cut_is_no_answer(chat_tags):
    trajectory, _ = roll(chat_tags, Engine(KALO), "Meri Vesu is the mayor of Kalo", max_tokens_per_turn=3)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MAX_TOKENS, None)


@pytest.mark.parametrize(
    ("whole", "more", "answer"),
    [
        ("Meri is the mayor. Ada is her friend.", " They live in", "Meri is the mayor. Ada is her friend."),
        ("First:\n1. Open it.", "\n2. Turn the", "First:\n1. Open it."),
        ("<think> I read. It says so.", " And so", None),
        ("Meri is the mayor. <search> Ada. Vesu.", " Kalo", None),
    ],
)
def test_a_cut_turn_keeps_its_whole_sentences(chat_tags, whole, more, answer):
    room = len(chat_tags.tokenizer.encode(whole + more, add_special_tokens=False))
    trajectory, _ = roll(chat_tags, Engine(KALO), f"{whole}{more} Kalo and Nida", max_tokens_per_turn=room)
    assert trajectory.answer == answer
    assert trajectory.stop_reason is (StopReason.ANSWERED if answer else StopReason.MAX_TOKENS)


def test_a_turn_that_the_time_has_cut_is_no_answer(chat_tags):
    sampler = chat_tags.sampler({"q/0": ["Meri Vesu is the mayor of Kalo<|im_end|>"]}, token_s=0.01)
    limits = {"max_total_tokens": 3000, "deadline_s": 0.03, "wait_s": 60.0}
    setting = {**chat_tags.setting(sampler, **limits), "env": environment(Engine(KALO))}
    trajectory = asyncio.run(run_trajectory(ASKED, trajectory_id="q/0", **setting))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MAX_TIME, None)


def test_a_call_in_json_that_cannot_be_read_is_no_answer(made, tools):
    llama = replace(tools, tokenizer=made("llama"), renderer=ToolCallRenderer(made("llama"), [tools.tool.schema]))
    trajectory, _ = roll(llama, Engine(KALO), '{"name": "search", "parameters": {<|eot_id|>')
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MALFORMED, None)
    assert roll(llama, Engine(KALO), "Meri<|eot_id|>")[0].answer == "Meri"


def test_elsewhere_a_turn_without_tags_stays_malformed(chat_tags):
    trajectory, _ = chat_tags.run({"q/0": ["Meri<|im_end|>"]})
    assert trajectory.stop_reason is StopReason.MALFORMED


def test_later_passages_have_the_next_numbers_and_the_first_search_costs_no_call(chat_tags):
    turns = ("<search> mayor of Nida </search>", "<search> Soro </search>", "Ada [2]<|im_end|>")
    trajectory, _ = roll(chat_tags, Engine(KALO, NIDA), *turns, max_tool_calls=2)
    assert len(trajectory.tool_results) == 2
    observations = [decoded(chat_tags, trajectory, number) for number in (2, 4)]
    assert [("[3] Kalo" in text, "[4] Nida" in text) for text in observations] == [(True, True), (False, False)]
    assert "[5] Kalo" in observations[1]
    assert trajectory.passages == (KALO, NIDA) * 3


def test_passages_of_calls_that_are_made_together_have_numbers_of_their_own(tools):
    calls = "".join(f'<tool_call>{{"name": "search", "arguments": {{"query": "{name}"}}}}</tool_call>' for name in "ab")
    trajectory, _ = roll(tools, Engine(KALO, NIDA), f"{calls}<|im_end|>", "Ada<|im_end|>")
    shown = [[line for line in result.text.splitlines() if line[:1] == "["] for result in trajectory.tool_results]
    assert shown == [["[3] Kalo", "[4] Nida"], ["[5] Kalo", "[6] Nida"]]


def test_a_result_with_numbers_is_not_longer_than_others(chat_tags):
    endless = replace(NIDA, text="x " * 60_000)

    class Later(Engine):
        async def search(self, queries, k):
            return [[KALO if query == ASKED.text else endless] for query in queries]

    trajectory, _ = roll(chat_tags, Later(), "<search> Nida </search>")
    assert len(trajectory.tool_results[0].text) == Limits(max_total_tokens=3000).max_result_characters


def test_what_leaves_no_room_for_a_turn_is_left_out_from_the_end(chat_tags):
    long = replace(SORO, text=" ".join(["soro"] * 400))
    full, _ = roll(chat_tags, Engine(KALO, NIDA, long), "Meri<|im_end|>")
    assert len(full.opening[0].passages) == 3
    room = len(full.segments[0].token_ids)
    enough = {"max_total_tokens": room + 20, "max_tokens_per_turn": 20}
    assert len(roll(chat_tags, Engine(KALO, NIDA, long), "Meri<|im_end|>", **enough)[0].opening[0].passages) == 3
    trajectory, _ = roll(
        chat_tags, Engine(KALO, NIDA, long), "Meri<|im_end|>", max_total_tokens=room + 19, max_tokens_per_turn=20
    )
    assert trajectory.opening[0].passages == (KALO, NIDA)
    assert "soro soro" not in decoded(chat_tags, trajectory)
    assert trajectory.answer == "Meri"
    with pytest.raises(ConfigError, match="max_total_tokens"):
        roll(chat_tags, Engine(KALO), "Meri<|im_end|>", max_total_tokens=20)


def test_where_no_passage_has_room_nothing_is_answered_or_refused(chat_tags):
    empty, _ = roll(chat_tags, Engine(), "Meri<|im_end|>")
    room = {"max_total_tokens": len(empty.segments[0].token_ids) + 20, "max_tokens_per_turn": 20}
    assert roll(chat_tags, Engine(), "Meri<|im_end|>", **room)[0].answer == "Meri"
    trajectory, sampler = roll(chat_tags, Engine(KALO), "Not found.<|im_end|>", **room)
    assert (trajectory.stop_reason, trajectory.answer, sampler.requests) == (StopReason.TOOL_FAILED, None, [])
    assert "No found passage fits into the prompt" in trajectory.failure


def test_a_failed_first_search_is_no_reward(chat_tags):
    question = Question("q", "fails", ("Meri",))
    trajectory, sampler = roll(chat_tags, Engine(KALO), "Meri<|im_end|>", question=question)
    assert (trajectory.stop_reason, trajectory.segments, sampler.requests) == (StopReason.TOOL_FAILED, (), [])

    async def right(_):
        return Scored(1.0)

    assert isinstance(asyncio.run(score(trajectory, right)), Invalid)


def test_a_document_that_is_hidden_from_the_question_is_not_shown(chat_tags):
    hidden = Question("q", ASKED.text, (), {"answerable": False, "hidden": ["kalo"]})
    trajectory, _ = roll(chat_tags, Engine(KALO, NIDA), "Ada<|im_end|>", question=hidden)
    assert trajectory.passages == (NIDA,)


def test_an_engine_that_finds_nothing_for_any_question_has_failed(chat_tags):
    trajectory, _ = roll(chat_tags, Engine(), "Meri<|im_end|>")
    assert "(none)" in decoded(chat_tags, trajectory)
    assert nothing_found([trajectory] * 9) is None
    assert nothing_found([trajectory] * 10) is not None


def test_the_record_keeps_what_the_prompt_shows(chat_tags):
    trajectory, _ = roll(chat_tags, Engine(KALO), "<search> Soro </search>", "Meri<|im_end|>")
    row = row_of(TrajectoryRecord(3, "g", trajectory, Scored(1.0)), chat_tags.tokenizer.decode)
    kept = record_of(row).trajectory
    assert [(result.text, result.passages) for result in kept.opening] == [("", (KALO,))]
    assert kept.passages == (KALO, KALO)
    without, _ = chat_tags.run({"q/0": ["<answer> Meri </answer>"]})
    assert "opening" not in row_of(TrajectoryRecord(3, "g", without, Scored(1.0)), chat_tags.tokenizer.decode)


def test_an_earlier_conversation_stands_before_the_passages(chat_tags):
    env = environment(Engine(KALO))
    assert after((), env) is env
    longer = after((Message("user", "Hello"), Message("assistant", "Hi")), env)
    assert isinstance(longer, OpeningEnvironment)
    assert not isinstance(
        after((Message("user", "Hello"),), SolverEnv([], load_prompts("default"))), OpeningEnvironment
    )
    assert isinstance(longer, HistoryEnv)
    trajectory, _ = roll(chat_tags, Engine(KALO), "Meri<|im_end|>", env=longer)
    prompt = decoded(chat_tags, trajectory)
    assert prompt.index("Hello") < prompt.index("The mayor of kalo is Meri") < prompt.rindex(ASKED.text)
    assert trajectory.passages == (KALO,)


def test_a_conversation_leaves_a_third_of_all_tokens_to_what_is_found(chat_tags):
    solver = Roller(environment(Engine(KALO)), chat_tags.renderer, None, Limits(max_tokens_per_turn=10))
    length = solver.prompt_length(ASKED)

    def has_room(total):
        return replace(solver, limits=Limits(max_tokens_per_turn=10, max_total_tokens=total)).has_room(ASKED)

    least = next(total for total in range(length, 4 * length) if has_room(total))
    assert least == length + 10 + least // 3


def test_a_chat_model_is_shown_the_passages_and_needs_no_tags():
    chat, engine = ScriptedChat({"q/0/turn-0": "<search> Nida </search>", "q/0/turn-1": "Ada [1]"}), Engine(KALO, NIDA)
    trajectory = asyncio.run(converse(ASKED, env=environment(engine), chat=chat, limits=Limits(), trajectory_id="q/0"))
    assert (trajectory.answer, trajectory.stop_reason) == ("Ada [1]", StopReason.ANSWERED)
    assert len(trajectory.opening) == len(trajectory.tool_results) == 1
    first = plain(chat.asked[0].messages[0].content)
    assert "The mayor of nida is Ada." in first


def test_without_tools_it_is_the_solver_and_without_the_tool_search_an_error():
    prompts = load_prompts("default")
    env = SearchFirstEnv.build(EnvironmentSettings(), EnvironmentContext([], prompts, "tags", 4))
    assert isinstance(env, SolverEnv)
    tool = SearchTool(None, template=prompts["observation"])
    made = SearchFirstEnv.build(EnvironmentSettings(), EnvironmentContext([tool], prompts, "tags", 4))
    assert isinstance(made, OpeningEnvironment)

    class Web(SearchTool):
        name = "web_search"

    with pytest.raises(ConfigError, match="search"):
        SearchFirstEnv([Web(None, template=prompts["observation"])], prompts, "tags")


@pytest.mark.parametrize("name", ["chat_tags", "tools"])
def test_without_a_call_a_refusal_takes_the_place_of_the_answer_of_the_last_of_a_group(request, name):
    stage = request.getfixturevalue(name)

    def script(asked):
        return stage.tokenizer.decode(list(asked.begins)) if asked.begins else "Meri<|im_end|>"

    sampler = stage.sampler(script)
    setting = stage.setting(sampler, max_total_tokens=3000, max_turns=1, max_tool_calls=0)
    roller = Roller(**{**setting, "env": environment(Engine(KALO), stage.renderer.format)})
    guided = replace(roller, reference=lambda question, passages: f"{passages[0].title} [1]")
    assert asyncio.run(guided.one(ASKED, "q/0", puts_off=True)).answer == "Kalo [1]"
    assert asyncio.run(guided.one(ASKED, "q/1")).answer == "Meri"
    long = replace(roller, reference=lambda question, passages: "Kalo " * setting["limits"].max_tokens_per_turn)
    assert asyncio.run(long.one(ASKED, "q/2", puts_off=True)).answer == "Meri"  # the policy's, where it has no room
    sampler.requests.clear()

    async def refused(trajectory):
        return Scored(float(trajectory.answer == "Not found in the documents."))

    group = asyncio.run(roller.group(ASKED, size=3, reward=refused, key="k", put_off=1))
    assert [one.answer for one in group.trajectories] == ["Meri", "Meri", "Not found in the documents."]
    assert [outcome.reward for outcome in group.outcomes] == [0.0, 0.0, 1.0]
    forced = next(asked.begins for asked in sampler.requests if asked.begins)
    assert group.trajectories[2].segments[1].token_ids == forced
    assert forced[-1] in stage.renderer.stop.token_ids
    assert group.trajectories[2].loss_mask.count(True) == len(forced)
