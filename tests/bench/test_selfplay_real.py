"""What the bench of self-play on real text plays with, and what it makes of proposals and scores."""

import json
from io import StringIO

import pytest
from rich.console import Console

from evoseek.rollout.environments import passage_task
from evoseek.rollout.record import TrajectoryRecord
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Action, Invalid, Passage, Scored, StopReason, ToolCall, ToolResult, Trajectory

ARTICLES = (
    ("Kalo (film)", "Kalo is a 1959 film directed by Meri Vesu."),
    ("Tora", "Tora is a 1961 film directed by Nobody Else."),
    ("Night", "Night is a 1971 film directed by Sergio Lo."),
    ("Meri Vesu", "Meri Vesu (5 May 1924 – 1990) was an Italian director."),
    ("Sergio Lo", "Sergio Lo (born 7 July 1930) is a Danish director."),
)


@pytest.fixture(scope="module")
def bench(script):
    return script("selfplay_real")


@pytest.fixture(scope="module")
def facts(script):
    return script("wiki2_facts").Facts(ARTICLES)


def proposal(outcome, question="When was the director of the film Kalo born?", answer="May 5, 1924"):
    shown = Passage("k#0", "k", *ARTICLES[0])
    found = ToolResult(ToolCall("search", {"query": "Meri"}), "", (Passage("m#0", "m", *ARTICLES[3]),))
    actions = (Action("", tool_calls=(found.call,)), Action("", answer=answer, question=question))
    task = passage_task("p", shown, 2)
    trajectory = Trajectory("p/0", task, "proposer", (), actions, (found,), StopReason.ANSWERED, answer)
    return TrajectoryRecord(3, "g", trajectory, outcome)


def test_a_proposal_is_shown_with_what_it_rests_on_and_judged(bench, facts):
    row = bench.proposal_of(proposal(Scored(1.0, {"format": 1.0})), facts)
    assert row == {
        "step": 3,
        "requested": 2,
        "passage": "\n".join(ARTICLES[0]),
        "searches": [{"query": "Meri", "found": ["\n".join(ARTICLES[3])]}],
        "question": "When was the director of the film Kalo born?",
        "answer": "May 5, 1924",
        "rejected": "",
        "hops": 2,
        "by_rules": "right",
    }


@pytest.mark.parametrize(
    ("outcome", "said", "found"),
    [
        (Scored(0.0, {"rejected/unsupported": 1.0}), {"answer": "1990"}, ("unsupported", 2, "wrong")),
        (Invalid(StopReason.TOOL_FAILED), {"question": "Who directed the film Zuva?"}, ("failed", 1, "unknown")),
        (Scored(1.0), {"question": "Who acts in Kalo?"}, ("", 0, "other")),
    ],
)
def test_what_became_of_a_proposal(bench, facts, outcome, said, found):
    row = bench.proposal_of(proposal(outcome, **said), facts)
    assert (row["rejected"], row["hops"], row["by_rules"]) == found


def test_the_game_has_films_whose_director_is_known_and_these_people_but_nothing_held_out(bench, facts, tmp_path):
    passages = [Passage(title, title, title, text) for title, text in ARTICLES]
    passages.append(Passage("more", "Night", "Night", "Sergio stars."))
    index = LexicalIndex.build(tmp_path / "index", passages)

    def played(left_out):
        bench.write_game(index, facts, left_out, tmp_path / "game.jsonl")
        return [json.loads(line)["id"] for line in (tmp_path / "game.jsonl").read_text().splitlines()]

    assert played(set()) == ["Kalo (film)", "Night", "Meri Vesu", "Sergio Lo"]
    assert played({"Kalo (film)"}) == ["Night", "Sergio Lo"]


def test_gold_has_the_steps_of_the_solver_and_the_settings_that_are_not_of_the_game(bench):
    of_game = ("dr_zero.solver_steps=7", "selfplay.proposals_per_step=2", "proposer.attempts=3")
    sets = (*of_game, "verification.readings=1", "filters.min_searches=1", "lora.rank=8")
    balanced = ["questions.balance_by=hops", "questions.shares={1=1, 2=1}"]
    assert bench.gold_settings(sets) == ["lora.rank=8", "run.steps=7", *balanced]


def test_the_tables(bench, tmp_path):
    def scores(*rewards):
        rows = [
            {"question": f"q{n} ?", "hops": n % 2 + 1, "reward": reward, "searches": 1}
            for n, reward in enumerate(rewards)
        ]
        return {"scores": dict.fromkeys(("sampled", "greedy", "closed book"), rows), "minutes": 2.0}

    def made(phase, step, *by_rules):
        row = {"phase": phase, "step": step, "requested": 1, "hops": 1}
        return [{**row, "rejected": "" if verdict == "right" else "noise", "by_rules": verdict} for verdict in by_rules]

    folder = tmp_path / "seed0"
    folder.mkdir()
    proposals = [*made("propose", 1, "right", "wrong"), *made("propose", 2, "right"), *made("write", 3, "other")]
    (folder / "sft.json").write_text(json.dumps(scores(0.0, 0.0, 1.0, 0.0)))
    (folder / "trained.json").write_text(
        json.dumps({**scores(1.0, 0.0, 1.0, 1.0), "proposals": proposals, "written": ["Q1 ?"]})
    )
    judged = [{"by_rules": "right", "by_hand": True}, {"by_rules": "unknown", "by_hand": True}]
    lines = [*judged, {"by_rules": "right", "by_hand": None}]
    (folder / "trained-proposals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = StringIO()
    bench.show(tmp_path, Console(file=said, width=250))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.getvalue().splitlines()]
    rows = {tuple(row[:3]): row for row in cells if row}
    trained = next(row for row in cells if row and row[0] == "trained" and row[2].startswith("0.750"))
    assert trained[3:5] == ["1.000", "0.500"]
    assert trained[10].startswith("+0.500, p = ")
    assert trained[11:] == ["1", "2"]
    assert rows["trained", "0", "first"][3:9] == ["2", "0.50", "0.50", "0.00", "0.00", "1.00"]
    assert rows["trained", "0", "first"][9:] == ["0.50", "1.00", "noise 1"]
    assert rows["trained", "0", "last"][3:5] == ["1", "1.00"]
    assert rows["trained", "0", "writing"][9:11] == ["0.00", "0.00"]
    assert "by hand 2 of 2 right; the rules agree on 1." in " ".join(said.getvalue().split())
