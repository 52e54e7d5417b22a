"""Contexts that are rewritten when they are full, and rollouts that begin with another one's beginning."""

import asyncio
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.renderers.tags import TagRenderer, tag_calls
from evoseek.rollout.environments import NotesEnv, after
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.record import TrajectoryRecord, record_of, row_of
from evoseek.rollout.roller import Roller
from evoseek.rollout.tools import FunctionTool, note
from evoseek.types import Action, ContextTurn, Message, Question, Scored, StopReason, ToolCall

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SEARCH, ANSWER = "<search> mayor {} </search>", "<answer> Meri </answer>"
NOTE = "<note> Kalo is {} </note>"
ROOM = 20


def search(query: str) -> str:
    """Find something."""
    return f"{query} is Meri"


class Stage:
    """Scripted turns in the environment `notes`, with a context of `context` tokens above the prompt."""

    def __init__(self, tokenizer):
        self.tokenizer, tools = tokenizer, [FunctionTool(search), FunctionTool(note)]
        self.renderer = TagRenderer(tokenizer, tag_calls([tool.schema for tool in tools]))
        self.env = NotesEnv(tools, load_prompts("tiny"))
        self.prompt = len(self.renderer.render_prompt(self.env.messages(QUESTION)))

    def roller(self, turns, context, env=None, **limits):
        self.sampler = ScriptedSampler(turns, self.tokenizer)
        prompt = len(self.renderer.render_prompt((env or self.env).messages(QUESTION)))
        own = Limits(max_turns=20, max_tokens_per_turn=ROOM, max_total_tokens=prompt + context, **limits)
        return Roller(env or self.env, self.renderer, self.sampler, own)

    def run(self, *turns, context, **options):
        return asyncio.run(self.roller({"q/0": turns}, context, **options).one(QUESTION, "q/0"))

    def texts(self, trajectory, kind="prompt"):
        """What stands in each prompt after the first."""
        of_kind = [segment for segment in trajectory.segments if segment.kind == kind]
        return [self.tokenizer.decode(segment.token_ids[self.prompt :]) for segment in of_kind]


@pytest.fixture
def stage(made):
    return Stage(made("base"))


def assert_only_what_was_sampled_is_trained(trajectory, sampler):
    """Each sampled token is in one branch, after exactly what the sampler was given."""
    seen = []
    for branch in trajectory.branches:
        ids = ()
        for segment in branch.segments:
            if segment.kind == "action":
                seen.append((ids, segment.token_ids, segment.logprobs))
            ids += segment.token_ids
    asked = zip(sampler.requests, sampler.completions, strict=True)
    assert seen == [(tuple(request.token_ids), made.token_ids, made.logprobs) for request, made in asked]


def test_without_a_limit_nothing_is_rewritten(stage):
    trajectory = stage.run(*(SEARCH.format(n) for n in range(6)), ANSWER, context=1000)
    assert len(trajectory.branches) == 1
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert_only_what_was_sampled_is_trained(trajectory, stage.sampler)


def test_the_oldest_turns_leave_and_the_search_goes_on_for_longer_than_its_context(stage):
    turns = [SEARCH.format(n) for n in range(6)]
    context = 2 * max(map(len, turn_ids(stage, turns))) + ROOM
    trajectory = stage.run(*turns, ANSWER, context=context)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "Meri")
    assert len(trajectory.branches) == 5
    shown = ["".join(n for n in "012345" if f"mayor {n}" in text) for text in stage.texts(trajectory)]
    assert shown == ["", "12", "23", "34", "45"]
    assert_only_what_was_sampled_is_trained(trajectory, stage.sampler)
    assert all(
        len(request.token_ids) + request.max_tokens <= stage.prompt + context for request in stage.sampler.requests
    )


def turn_ids(stage, turns):
    """The ids of each turn with its result."""
    trajectory = stage.run(*turns, ANSWER, context=10_000)
    parts = trajectory.segments[1:-1]
    return [one.token_ids + two.token_ids for one, two in zip(parts[::2], parts[1::2], strict=True)]


def test_notes_outlive_older_and_newer_turns(stage):
    turns = [NOTE.format("a"), *(SEARCH.format(n) for n in range(4))]
    noted, *searched = turn_ids(stage, turns)
    trajectory = stage.run(*turns, ANSWER, context=len(noted) + 2 * max(map(len, searched)) + ROOM)
    prompts = stage.texts(trajectory)[1:]
    assert ["".join(digit for digit in "0123" if f"mayor {digit}" in prompt) for prompt in prompts] == ["12", "23"]
    assert all(NOTE.format("a") in prompt for prompt in prompts)
    assert_only_what_was_sampled_is_trained(trajectory, stage.sampler)


@pytest.mark.parametrize(
    ("kinds", "lengths", "room", "kept"),
    [
        ("sss", (5, 5, 5), 15, (0, 1, 2)),
        ("sss", (5, 5, 5), 14, (1, 2)),
        ("nss", (5, 5, 5), 14, (0, 2)),
        ("nnsss", (3, 3, 5, 5, 5), 13, (0, 1, 4)),
        ("nnsss", (3, 3, 5, 5, 5), 10, (1, 4)),
        ("sns", (1, 9, 5), 10, (2,)),
        ("ss", (5, 50), 10, (1,)),
    ],
)
def test_the_last_turn_stays_then_notes_then_the_others_the_newest_first(stage, kinds, lengths, room, kept):
    names = {"s": "search", "n": "note"}
    turns = [
        ContextTurn(Action("", (ToolCall(names[kind], {}),)), (1,), (2,) * (length - 1))
        for kind, length in zip(kinds, lengths, strict=True)
    ]
    assert stage.env.rewritten(turns, room) == [turns[place] for place in kept]


def test_a_result_too_long_for_the_context_ends_the_rollout_as_ever(stage):
    trajectory = stage.run("<search> " + "mayor " * 12 + "</search>", ANSWER, context=ROOM + 1)
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    assert len(trajectory.branches) == 1


def test_a_conversation_before_the_prompt_stays_in_every_branch(stage):
    env = after([Message("user", "hello Tolu")], stage.env)
    turns = [SEARCH.format(n) for n in range(4)]
    context = max(map(len, turn_ids(stage, turns))) + ROOM
    trajectory = stage.run(*turns, ANSWER, context=context, env=env)
    prompts = [stage.tokenizer.decode(branch.segments[0].token_ids) for branch in trajectory.branches]
    assert len(prompts) == 4
    assert all("Tolu" in prompt for prompt in prompts)


class TestStart:
    """A rollout that begins before an action of another one."""

    def both(self, stage, turn, *, context=1000, **limits):
        first = [SEARCH.format(n) for n in range(3)]
        turns = {"q/0": [*first, ANSWER], "q/1": [*["unused"] * turn, SEARCH.format(7), "<answer> Tolu </answer>"]}
        roller = stage.roller(turns, context, **limits)
        old = asyncio.run(roller.one(QUESTION, "q/0"))
        return old, asyncio.run(roller.one(QUESTION, "q/1", start=old.before(turn)))

    @pytest.mark.parametrize("turn", [0, 1, 3])
    def test_it_continues_from_there_and_trains_on_its_own_tokens_alone(self, stage, turn):
        old, new = self.both(stage, turn)
        whole = [segment.token_ids for segment in old.segments[: 1 + 2 * turn]]
        assert new.segments[0].token_ids == tuple(token for ids in whole for token in ids)
        assert new.num_action_tokens == sum(len(made.token_ids) for made in stage.sampler.completions[-2:])
        assert [request.turn for request in stage.sampler.requests[-2:]] == [turn, turn + 1]
        assert new.actions[:turn] == old.actions[:turn]
        assert new.tool_results[:turn] == old.tool_results[:turn]
        assert (len(new.tool_results), new.answer, old.answer) == (turn + 1, "Tolu", "Meri")

    def test_it_may_begin_in_a_rewritten_context(self, stage):
        context = max(map(len, turn_ids(stage, [SEARCH.format(n) for n in range(3)]))) + ROOM
        old, new = self.both(stage, 2, context=context)
        assert len(old.branches) == 3
        assert new.segments[0] == old.branches[1].segments[0]
        assert (new.actions[:2], new.answer) == (old.actions[:2], "Tolu")
        assert len(new.branches) == 2  # what it began with has left again

    def test_its_first_turns_leave_like_others_when_the_context_is_full(self, stage):
        turns = turn_ids(stage, [SEARCH.format(n) for n in range(3)])
        old, new = self.both(stage, 2, context=2 * max(map(len, turns)) + ROOM)
        assert len(old.branches) == 2
        assert new.segments[0].token_ids[stage.prompt :] == (*turns[0], *turns[1])
        assert new.branches[1].token_ids[stage.prompt :][: len(turns[1])] == turns[1]
        assert new.answer == "Tolu"

    def test_turns_and_calls_of_the_beginning_count_for_the_limits(self, stage):
        assert self.both(stage, 2, max_tool_calls=3)[1].stop_reason is StopReason.ANSWERED
        assert self.both(stage, 3, max_tool_calls=3)[1].stop_reason is StopReason.MAX_TOOL_CALLS

    def test_it_comes_back_from_its_record(self, stage):
        _, new = self.both(stage, 2)
        new = replace(new, tool_results=tuple(replace(one, latency_s=0.0) for one in new.tool_results))
        record = TrajectoryRecord(1, "k", new, Scored(1.0))
        assert record_of(row_of(record, stage.tokenizer.decode)) == record

    def test_an_action_that_is_not_there_is_refused(self, stage):
        old, new = self.both(stage, 2)
        for trajectory, turn, words in ((old, 4, "0 to 3, not 4"), (old, -1, "not -1"), (new, 1, "2 to 3, not 1")):
            with pytest.raises(ValueError, match=words):
                trajectory.before(turn)
