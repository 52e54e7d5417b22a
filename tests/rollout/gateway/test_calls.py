"""The tree of calls: which call continues which, and what a rollout's segments are."""

from hypothesis import given
from hypothesis import strategies as st

from evoseek.rollout.gateway.calls import AgentCall, CallTree, Said
from evoseek.types import Action, Completion, Message, ToolCall


def said(role, text, *calls, thought=""):
    return Said(Message(role, text, calls), thought)


def call(tree, messages, reply, *, tools="[]", version=0, ended=0, delivered=True):
    """Add a call whose context is the ids of its messages, continued if the tree finds what it continues."""
    after, known = tree.find(messages, tools)
    new = tuple(100 + len(one.message.content) for one in messages[known:])
    context = (*after.token_ids, *new) if after else new
    done = Completion((len(reply),), (-0.5,), "stop", version)
    keys = tuple(one.key for one in messages)
    made = AgentCall(context, done, Action(reply), ended, keys, tools, (said("assistant", reply),), after, delivered)
    tree.add(made, messages)
    return made


def test_the_layout_of_json_and_the_order_of_its_names_do_not_count():
    one = said("assistant", "", ToolCall("search", {"query": "mayor", "k": 3}))
    other = said("assistant", "", ToolCall("search", {"k": 3, "query": "mayor"}))
    changed = said("assistant", "", ToolCall("search", {"k": 4, "query": "mayor"}))
    assert one.key == other.key != changed.key
    assert said("assistant", "<think>\nwhy\n</think>\n\na").key == said("assistant", "a", thought="why").key
    assert said("user", "a").key != said("assistant", "a").key != said("assistant", "a", thought="b").key


def test_a_continued_call_adds_only_what_is_new():
    tree, question = CallTree(), said("user", "who?")
    call(tree, [question], "search")
    call(tree, [question, said("assistant", "search"), said("tool", "found it")], "Meri")
    segments, actions = tree.segments(0, only_last=False)
    assert [(segment.kind, segment.token_ids) for segment in segments] == [
        ("prompt", (104,)),
        ("action", (6,)),
        ("observation", (108,)),
        ("action", (4,)),
    ]
    assert [action.text for action in actions] == ["search", "Meri"]


def test_an_undelivered_call_is_left_out_and_a_forgotten_first_branch_names_no_cause():
    tree = CallTree()
    call(tree, [said("user", "a")], "lost", delivered=False)
    call(tree, [said("user", "bb")], "kept", version=2, ended=3)
    segments, actions = tree.segments(2, only_last=False)
    assert [(s.kind, s.cause, s.policy_version, s.ended_version) for s in segments] == [
        ("prompt", "", None, None),
        ("action", "", None, 3),
    ]
    assert [action.text for action in actions] == ["kept"]


def test_a_second_continuation_of_a_reply_is_a_fork_whose_prompt_holds_the_first_reply():
    tree, question = CallTree(), said("user", "who?")
    call(tree, [question], "search")
    before = [question, said("assistant", "search")]
    call(tree, [*before, said("tool", "one")], "a")
    call(tree, [*before, said("tool", "four")], "b")
    segments, _ = tree.segments(0, only_last=False)
    assert (segments[4].kind, segments[4].token_ids, segments[4].cause) == ("prompt", (104, 6, 104), "fork")
    last, _ = tree.segments(0, only_last=True)
    assert [segment.token_ids for segment in last] == [(104,), (6,), (104,), (1,)]


def test_a_shorter_history_is_named():
    tree, question = CallTree(), said("user", "who?")
    call(tree, [question, said("assistant", "search"), said("tool", "one")], "a")
    call(tree, [question], "b")
    assert [branch.cause for branch in tree.branches] == ["", "shorter"]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), min_size=1, max_size=12))
def test_any_calls_give_each_action_once_after_exactly_its_context(conversations):
    """Users say letters, and the policy always `x`: conversations that begin alike continue each other."""
    tree, contexts = CallTree(), []
    for letters in conversations:
        turns = [turn for letter in letters for turn in (said("user", letter), said("assistant", "x"))]
        contexts.append(call(tree, turns[:-1], "x").context)
    segments, actions = tree.segments(0, only_last=False)
    found, before = [], ()
    for segment in segments:
        before = () if segment.kind == "prompt" else before
        if segment.kind == "action":
            found.append(before)
        before += segment.token_ids
    assert sorted(found) == sorted(contexts)
    assert len(actions) == len(conversations)


def test_the_last_call_is_trained_on_with_the_delivered_ones_that_it_continues():
    """What was not delivered is only read."""
    tree, messages = CallTree(), [said("user", "who?")]
    for number in range(4):
        call(tree, messages, f"{number}", delivered=number != 1)
        messages = [*messages, said("assistant", f"{number}"), said("user", "more")]
    segments, actions = tree.segments(0, only_last=True)
    assert [action.text for action in actions] == ["0", "2", "3"]
    assert [len(segment.token_ids) for segment in segments] == [1, 1, 3, 1, 1, 1]
