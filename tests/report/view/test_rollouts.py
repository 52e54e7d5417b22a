import pytest

from evoseek.report.view.rollouts import RecordedCredit, credit_of, detail_of, rollout_of
from evoseek.report.view.terminal import rollout_text


def test_what_a_list_shows(make_row):
    rollout = rollout_of(make_row(3))
    assert (rollout.reward, rollout.hops, rollout.searches, rollout.tokens) == (1.0, 2, 1, 6)
    assert (rollout.shown_role, rollout.episode, rollout.invalid) == ("solver", "step-000001/q", None)


def test_what_was_found_before_the_first_turn_is_a_search_and_is_shown(make_row):
    row = make_row(3)
    row["opening"] = [{**row["tool_results"][0], "text": ""}]
    assert rollout_of(row).searches == 2
    (shown,) = detail_of(row, None)["opening"]
    assert ("text" in shown, len(shown["passages"])) == (False, len(row["tool_results"][0]["passages"]))


@pytest.mark.parametrize(
    ("metadata", "hops"),
    [({"requested": 3}, 3), ({"requested": 0}, None), ({"requested": 0, "hops": 2}, 2), ({}, None)],
)
def test_hops_that_the_proposer_was_free_to_choose_are_not_shown_as_none(make_row, metadata, hops):
    assert rollout_of(make_row(metadata=metadata)).hops == hops


def test_the_members_of_an_episode_share_its_key(make_row):
    proposal = make_row(
        id="step-000001/proposals/qr1", role="proposer", group="requested-2", action={"question": "Who?"}
    )
    reading = make_row(id="step-000001/q/closed-book", group="step-000001/q/checks")
    rollouts = [rollout_of(one) for one in (proposal, reading, make_row())]
    assert {rollout.episode for rollout in rollouts} == {"step-000001/q"}
    assert [rollout.shown_role for rollout in rollouts] == ["proposer", "reader", "solver"]
    assert rollouts[0].stated == "Who?"


def test_an_invalid_rollout_has_no_reward_and_a_rejected_proposal_its_reason(make_row):
    failed = rollout_of(make_row(outcome={"invalid": "tool_failed", "detail": "no answer"}))
    assert (failed.reward, failed.invalid, failed.detail) == (None, "tool_failed", "no answer")
    assert rollout_of(make_row(outcome={"reward": 0.0, "parts": {"rejected/duplicate": 1.0}})).rejected == "duplicate"


def test_one_advantage_or_one_for_each_token_and_the_difference_to_the_learner(make_row):
    learner = [-0.5, -0.75, 0.0, -1.0, -2.0, -3.5]
    detail = detail_of(make_row(), RecordedCredit(0.70710678, learner))
    assert detail["advantages"] == 0.70711
    assert detail["differences"] == [0.0, 0.5, 0.0, 0.0, 0.0, 0.5]
    assert detail_of(make_row(), RecordedCredit([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))["advantages"] == [
        1.0,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
    ]


def test_advantages_of_other_tokens_are_left_out(make_row):
    assert "advantages" not in detail_of(make_row(), RecordedCredit([1.0, 2.0]))
    assert "advantages" not in detail_of(make_row(), None)


def test_a_result_is_not_repeated_where_the_observation_says_it(make_row):
    said = make_row()
    assert "text" not in detail_of(said, None)["results"][0]
    said["tool_results"][0]["text"] = "Something else."
    assert detail_of(said, None)["results"][0]["text"] == "Something else."


def test_the_turns_of_a_model_without_known_tokens_are_shown(make_row):
    row = make_row()
    row["segments"] = []
    for action, text in zip(row["actions"], ("I search.", "I answer."), strict=True):
        action["text"] = text
    detail = detail_of(row, None)
    assert [(segment["kind"], segment["text"]) for segment in detail["segments"]] == [
        ("action", "I search."),
        ("observation", "Kalo's mayor is Meri."),
        ("action", "I answer."),
    ]
    assert "text" not in detail["results"][0]
    assert detail["segments"][0]["ids"] == []


def test_what_was_found_before_the_first_turn_is_shown_and_counted(make_row):
    row = make_row()
    row |= {"segments": [], "opening": [{**row["tool_results"][0], "text": ""}]}
    row["opening"][0]["passages"] = [{"id": "nida#0", "title": "Nida", "text": "Nida lies in Vesu."}]
    assert rollout_of(row).searches == 2
    assert detail_of(row, None)["segments"][0] == {"kind": "prompt", "text": "Nida lies in Vesu.", "length": 0}
    assert "\nIn the prompt: Nida\n" in rollout_text(rollout_of(row), detail_of(row, None))


def test_lines_of_samples():
    assert credit_of({"id": "a", "advantages": 0.5}) == ("a", RecordedCredit(0.5))
    assert credit_of({"id": "a", "advantages": [0.5, 1.0], "old_logprobs": [-1, -2]})[1] == RecordedCredit(
        [0.5, 1.0], (-1.0, -2.0)
    )
    with pytest.raises(ValueError, match="float"):
        credit_of({"id": "a", "advantages": "x"})
