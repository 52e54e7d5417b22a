import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoseek.errors import ConfigError, SamplerError
from evoseek.rollout.run import run_trajectory
from evoseek.types import Completion, Question, StopReason, ToolCall

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))
SEARCH, ANSWER = "<search> mayor </search>", "<answer> Meri </answer>"
fixtures_are_stateless = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def hermes(*queries):
    call = '<tool_call>\n{"name": "search", "arguments": {"query": "%s"}}\n</tool_call>'
    return "\n".join(call % query for query in queries) + "<|im_end|>"


def assert_ids_are_the_samplers(trajectory, sampler):
    """Contract: the concatenated segments equal, id for id, what the sampler was given and gave."""
    expected = sampler.requests[0].token_ids
    for turn, (request, completion) in enumerate(itertools.zip_longest(sampler.requests, sampler.completions)):
        assert request.turn == turn
        assert request.token_ids[: len(expected)] == expected
        expected = request.token_ids + (completion.token_ids if completion else ())
    assert trajectory.token_ids == expected
    actions = [segment for segment in trajectory.segments if segment.kind == "action"]
    assert [(a.token_ids, a.logprobs) for a in actions] == [(c.token_ids, c.logprobs) for c in sampler.completions]
    given_back = [token for token, acts in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if acts]
    assert given_back == [token for completion in sampler.completions for token in completion.token_ids]


def test_a_rollout_searches_and_answers(tags):
    trajectory, sampler = tags.run({"q/0": [SEARCH, ANSWER]})
    assert [segment.kind for segment in trajectory.segments] == ["prompt", "action", "observation", "action"]
    assert (trajectory.stop_reason, trajectory.answer, trajectory.failure) == (StopReason.ANSWERED, "Meri", None)
    assert trajectory.actions[0].tool_calls == (ToolCall("search", {"query": "mayor"}),)
    assert trajectory.tool_results[0].text == "mayor : Meri"
    assert sampler.released == ["q/0"]
    assert [(r.turn, r.temperature, r.seed, r.stop) for r in sampler.requests] == [
        (0, 0.7, 5, tags.renderer.stop),
        (1, 0.7, 5, tags.renderer.stop),
    ]
    assert_ids_are_the_samplers(trajectory, sampler)


turns = st.lists(
    st.one_of(
        st.sampled_from(
            [SEARCH, ANSWER, hermes("mayor"), hermes("a", "b"), "Meri<|im_end|>", "", "<search>", "<|im_end|>"]
        ),
        st.lists(st.integers(0, 60), max_size=8),
        st.text(max_size=8).map(lambda text: f"<search>{text}</search>"),
    ),
    max_size=6,
)


@pytest.mark.parametrize("stage", ["tags", "tools"])
@given(
    script=turns,
    max_turns=st.integers(1, 5),
    room=st.integers(1, 300),
    per_turn=st.integers(1, 60),
    malformed=st.integers(0, 2),
    last_words=st.sampled_from([None, "answer now"]),
)
@fixtures_are_stateless
def test_the_segments_are_id_for_id_what_the_sampler_was_given_and_gave(
    request, stage, script, max_turns, room, per_turn, malformed, last_words
):
    def say(asked):
        if asked.turn >= len(script):
            raise SamplerError("the script is over")
        said = script[asked.turn]
        return said.encode("utf-8", "ignore").decode() if isinstance(said, str) else said

    stage = request.getfixturevalue(stage)
    sampler = stage.sampler(say, logprob=-0.25)
    prompt = stage.setting(sampler)["env"].messages(QUESTION)
    max_total = len(stage.renderer.render_prompt(prompt)) + room
    limits = {"max_turns": max_turns, "max_total_tokens": max_total, "max_tokens_per_turn": per_turn}
    limits |= {"max_malformed": malformed, "final_answer": last_words}
    trajectory = asyncio.run(run_trajectory(QUESTION, trajectory_id="q/0", **stage.setting(sampler, **limits)))
    assert len(sampler.requests) <= max_turns
    assert sampler.released == ["q/0"]
    assert_ids_are_the_samplers(trajectory, sampler)
    assert len(trajectory.token_ids) <= max_total


def test_trap_what_the_model_wrote_is_never_tokenised_anew(tools):
    ids = tools.tokenizer.encode(hermes("mayor"), add_special_tokens=False)
    letters = [tools.tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "Paris"]
    odd = [*letters, *ids]  # "Paris" letter by letter, which no tokenizer would give for the word
    assert tools.tokenizer.encode(tools.tokenizer.decode(odd), add_special_tokens=False) != odd
    trajectory, sampler = tools.run(lambda asked: odd if asked.turn == 0 else "Meri<|im_end|>")
    assert trajectory.segments[1].token_ids == tuple(odd)
    assert list(sampler.requests[1].token_ids[len(sampler.requests[0].token_ids) :])[: len(odd)] == odd


def test_a_turn_cut_after_its_call_is_closed_before_the_observation(tools):
    _, sampler = tools.run({"q/0": [hermes("mayor").removesuffix("<|im_end|>"), "Meri<|im_end|>"]})
    first, second = (request.token_ids for request in sampler.requests)
    assert "</tool_call><|im_end|>\n<|im_start|>user\n" in tools.tokenizer.decode(second[len(first) :])


def test_several_calls_of_a_turn_run_side_by_side_and_are_shown_in_order(tools):
    trajectory = tools.say(hermes("waits", "mayor"), "Meri<|im_end|>")
    assert tools.tool.order == ["waits begins", "mayor begins", "mayor ends", "waits ends"]
    assert [result.text for result in trajectory.tool_results] == ["waits : Meri", "mayor : Meri"]
    shown = tools.tokenizer.decode(trajectory.segments[2].token_ids)
    assert shown.index("waits") < shown.index("mayor")


@pytest.mark.parametrize(
    ("turns", "limits", "reason"),
    [
        ([SEARCH, SEARCH, ANSWER], {"max_turns": 2}, StopReason.MAX_TURNS),
        ([SEARCH, ANSWER], {"max_turns": 2}, StopReason.ANSWERED),
        ([SEARCH, SEARCH, ANSWER], {"max_tool_calls": 1}, StopReason.MAX_TOOL_CALLS),
        (["mayor " * 9 + ANSWER], {"max_tokens_per_turn": 9}, StopReason.MAX_TOKENS),
        (["mayor of Kalo"], {}, StopReason.MALFORMED),
    ],
)
def test_a_limit_ends_the_rollout_with_its_reason(tags, turns, limits, reason):
    trajectory, _ = tags.run({"q/0": turns}, **limits)
    assert trajectory.stop_reason is reason
    assert (trajectory.answer == "Meri") == (reason is StopReason.ANSWERED)


def test_calls_of_the_last_turn_or_above_the_limit_are_not_run(tags):
    tags.run({"q/0": [SEARCH, SEARCH]}, max_turns=2)
    tags.run({"q/0": [SEARCH, SEARCH]}, max_tool_calls=1)
    assert len(tags.tool.order) == 4  # begin and end of one call each


TOLD = "answer now"


@pytest.mark.parametrize(
    ("turns", "reason", "observed"),
    [
        ([SEARCH, SEARCH, ANSWER], StopReason.ANSWERED, ["mayor : Meri", TOLD]),
        ([SEARCH, SEARCH, SEARCH, ANSWER], StopReason.MAX_TOOL_CALLS, ["mayor : Meri", TOLD]),
        ([SEARCH, SEARCH, "Meri"], StopReason.MALFORMED, ["mayor : Meri", TOLD]),
        ([SEARCH, ANSWER], StopReason.ANSWERED, ["mayor : Meri"]),
    ],
)
def test_the_call_that_is_too_many_is_not_made_and_one_turn_is_left_to_answer(tags, turns, reason, observed):
    trajectory, sampler = tags.run({"q/0": turns}, max_tool_calls=1, final_answer=TOLD)
    assert trajectory.stop_reason is reason
    assert tags.tool.order == ["mayor begins", "mayor ends"]
    assert len(trajectory.tool_results) == 1
    shown = [tags.tokenizer.decode(s.token_ids) for s in trajectory.segments if s.kind == "observation"]
    assert [text.strip() for text in shown] == [f"<information>\n{text}\n</information>" for text in observed]
    assert_ids_are_the_samplers(trajectory, sampler)


def test_after_the_last_word_not_even_a_call_that_was_left_is_made(tools):
    turns = [hermes("mayor"), hermes("a", "b"), hermes("mayor")]
    trajectory, sampler = tools.run({"q/0": turns}, max_tool_calls=2, final_answer=TOLD)
    assert trajectory.stop_reason is StopReason.MAX_TOOL_CALLS
    assert len(trajectory.tool_results) == 1
    assert tools.tokenizer.decode(trajectory.segments[4].token_ids).count(TOLD) == 2  # one for each call
    assert_ids_are_the_samplers(trajectory, sampler)


def notices(stage, trajectory):
    return [stage.tokenizer.decode(s.token_ids) for s in trajectory.segments if s.kind == "observation"]


@pytest.mark.parametrize(
    ("turns", "limits", "reason", "told"),
    [
        (["mayor", ANSWER], {"max_malformed": 1}, StopReason.ANSWERED, ["malformed"]),
        (["mayor", SEARCH, "<search> a", ANSWER], {"max_malformed": 2}, StopReason.ANSWERED, ["malformed"] * 2),
        (["mayor", "Kalo", ANSWER], {"max_malformed": 1}, StopReason.MALFORMED, ["malformed"]),
        (
            ["mayor", "Kalo", ANSWER],
            {"max_malformed": 1, "final_answer": TOLD},
            StopReason.ANSWERED,
            ["malformed", TOLD],
        ),
        (
            ["a", "b", SEARCH],
            {"max_malformed": 1, "final_answer": TOLD},
            StopReason.MAX_TOOL_CALLS,
            ["malformed", TOLD],
        ),
        (["a", "b", "c"], {"max_malformed": 1, "final_answer": TOLD}, StopReason.MALFORMED, ["malformed", TOLD]),
        (["mayor", ANSWER], {"final_answer": TOLD}, StopReason.MALFORMED, []),  # 0 allowed: as without the setting
        (["mayor", ANSWER], {"max_malformed": 5, "max_turns": 1}, StopReason.MALFORMED, []),  # a reader has one turn
        (["mayor " * 40, ANSWER], {"max_malformed": 1, "max_tokens_per_turn": 30}, StopReason.ANSWERED, ["malformed"]),
    ],
)
def test_a_malformed_turn_is_told_and_the_rollout_goes_on_within_the_bound(tags, turns, limits, reason, told):
    trajectory, sampler = tags.run({"q/0": turns}, **limits)
    assert trajectory.stop_reason is reason
    assert (trajectory.answer == "Meri") == (reason is StopReason.ANSWERED)
    shown = [text.strip() for text in notices(tags, trajectory) if "mayor" not in text]
    assert shown == [f"<information>\n{text}\n</information>" for text in told]
    assert_ids_are_the_samplers(trajectory, sampler)


def test_whoever_ended_the_turn_is_told_in_a_message_of_the_users(tools, mayors):
    broken = '<tool_call>{"name": </tool_call>'
    for said in (broken, broken + "<|im_end|>"):
        trajectory, sampler = tools.run({"q/0": [said, "Meri<|im_end|>"]}, max_malformed=1)
        assert (trajectory.stop_reason, trajectory.answer, mayors.order) == (StopReason.ANSWERED, "Meri", [])
        shown = notices(tools, trajectory)[0]
        assert shown.removeprefix("<|im_end|>") == "\n<|im_start|>user\nmalformed<|im_end|>\n<|im_start|>assistant\n"
        assert shown.startswith("<|im_end|>") == (said == broken)
        assert_ids_are_the_samplers(trajectory, sampler)


def test_a_chat_model_that_ends_its_turn_without_a_tag_gets_a_new_one_and_who_is_cut_off_goes_on(chat_tags):
    stage = chat_tags
    ended, sampler = stage.run({"q/0": ["Meri.<|im_end|>", ANSWER]}, max_malformed=1)
    assert notices(stage, ended) == ["\n<|im_start|>user\nmalformed<|im_end|>\n<|im_start|>assistant\n"]
    assert_ids_are_the_samplers(ended, sampler)
    cut, sampler = stage.run({"q/0": ["it is Meri", ANSWER]}, max_malformed=1)
    assert notices(stage, cut) == ["\n\n<information>\nmalformed\n</information>\n\n"]
    assert_ids_are_the_samplers(cut, sampler)
    assert ended.answer == cut.answer == "Meri"


def test_a_notice_after_which_nothing_fits_is_left_out(tags):
    full, _ = tags.run({"q/0": ["mayor", ANSWER]}, max_malformed=1)
    room = len(full.token_ids) - len(full.segments[-1].token_ids)
    cut, _ = tags.run({"q/0": ["mayor", ANSWER]}, max_malformed=1, max_total_tokens=room)
    assert (cut.stop_reason, cut.segments) == (StopReason.MAX_TOKENS, full.segments[:2])


def test_a_forced_answer_keeps_within_the_other_limits(tags):
    script = {"q/0": [SEARCH, SEARCH, ANSWER]}
    assert tags.run(script, max_tool_calls=1, max_turns=2, final_answer=TOLD)[0].stop_reason is StopReason.MAX_TURNS
    stopped, _ = tags.run(script, max_tool_calls=1)
    short, _ = tags.run(script, max_tool_calls=1, max_total_tokens=len(stopped.token_ids) + 2, final_answer=TOLD)
    assert short.stop_reason is StopReason.MAX_TOKENS
    assert short.token_ids == stopped.token_ids


def test_an_observation_after_which_nothing_fits_is_left_out(tags):
    full, _ = tags.run({"q/0": [SEARCH, ANSWER]})
    room = len(full.token_ids) - len(full.segments[-1].token_ids)  # exactly up to the observation's end
    cut, _ = tags.run({"q/0": [SEARCH, ANSWER]}, max_total_tokens=room)
    assert (cut.stop_reason, cut.segments) == (StopReason.MAX_TOKENS, full.segments[:2])
    more, sampler = tags.run({"q/0": [SEARCH, ANSWER]}, max_total_tokens=room + 1)
    assert (len(more.segments), sampler.requests[1].max_tokens) == (4, 1)


@pytest.mark.parametrize(
    ("query", "failure"),
    [
        ("fails", "search: ToolError: the engine is down"),
        ("breaks", "search: ZeroDivisionError: division by zero"),
        ("cancels", "search: CancelledError: the client gave up"),
    ],
)
def test_a_failed_tool_ends_the_rollout_and_what_was_written_is_kept(tags, query, failure):
    trajectory = tags.say(SEARCH, f"<search> {query} </search>", ANSWER)
    assert (trajectory.stop_reason, trajectory.failure, trajectory.answer) == (StopReason.TOOL_FAILED, failure, None)
    assert [segment.kind for segment in trajectory.segments] == ["prompt", "action", "observation", "action"]
    assert len(trajectory.actions) == 2
    assert len(trajectory.tool_results) == 1


def test_one_failed_call_of_several_keeps_the_results_of_the_others(tools):
    trajectory = tools.say(hermes("fails", "mayor"))
    assert trajectory.stop_reason is StopReason.TOOL_FAILED
    assert [result.text for result in trajectory.tool_results] == ["mayor : Meri"]


def test_a_failed_sampler_ends_the_rollout(tags):
    trajectory, sampler = tags.run({"q/0": [SEARCH]})
    assert trajectory.stop_reason is StopReason.SAMPLER_FAILED
    assert "no turn 1" in trajectory.failure
    assert trajectory.segments[-1].kind == "observation"  # it was given to the sampler
    assert sampler.released == ["q/0"]
    short, _ = tags.run(lambda asked: Completion((1, 2), (0.0,), "stop"))
    assert "one for each id" in short.failure


@pytest.mark.parametrize("error", [ZeroDivisionError, TimeoutError])
def test_other_errors_of_the_sampler_are_raised_after_release(tags, error):
    def say(asked):
        raise error

    sampler = tags.sampler(say)
    with pytest.raises(error):
        asyncio.run(run_trajectory(QUESTION, trajectory_id="q/0", **tags.setting(sampler)))
    assert sampler.released == ["q/0"]


def test_the_deadline_ends_a_hanging_tool(tags):
    trajectory, sampler = tags.run({"q/0": [SEARCH, "<search> hangs </search>"]}, deadline_s=0.05)
    assert trajectory.stop_reason is StopReason.DEADLINE
    assert "0.05 s" in trajectory.failure
    assert [segment.kind for segment in trajectory.segments] == ["prompt", "action", "observation", "action"]
    assert sampler.released == ["q/0"]


def test_without_a_deadline_no_timer_is_set(tags):
    setting = tags.setting(tags.sampler({"q/0": [SEARCH, ANSWER]}))

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_at = loop.call_later = None  # any use would raise
        return await run_trajectory(QUESTION, trajectory_id="q/0", **setting)

    assert asyncio.run(main()).stop_reason is StopReason.ANSWERED


def test_an_unknown_tool_is_told_to_the_policy(tools):
    said = '<tool_call>{"name": "browse", "arguments": {}}</tool_call><|im_end|>'
    trajectory = tools.say(said, "Meri<|im_end|>")
    assert trajectory.stop_reason is StopReason.ANSWERED
    assert trajectory.tool_results[0].text == 'There is no tool "browse". The tools are: search.'


def test_the_policy_version_is_that_of_the_first_turn(tags):
    versions = iter([4, 5])

    def say(asked):
        ids = tags.tokenizer.encode([SEARCH, ANSWER][asked.turn], add_special_tokens=False)
        return Completion(tuple(ids), (0.0,) * len(ids), "stop", next(versions))

    assert tags.run(say)[0].policy_version == 4


def test_a_cancelled_rollout_is_cancelled_and_no_failed_tool(tags):
    sampler = tags.sampler({"q/0": ["<search> hangs </search>"]})

    async def main():
        rollout = asyncio.create_task(run_trajectory(QUESTION, trajectory_id="q/0", **tags.setting(sampler)))
        while not tags.tool.order:
            await asyncio.sleep(0)
        rollout.cancel()
        await rollout

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert sampler.released == ["q/0"]


def test_trap_a_prompt_that_leaves_no_room_for_a_token_is_refused_and_never_scored(tags):
    length = len(tags.say(ANSWER).segments[0].token_ids)
    assert tags.run({"q/0": [ANSWER]}, max_total_tokens=length + 1)[0].stop_reason is StopReason.MAX_TOKENS
    with pytest.raises(ConfigError, match=rf"'q' has {length} tokens.*{length} \(max_total_tokens\).*Raise"):
        tags.run({"q/0": [ANSWER]}, max_total_tokens=length)
