from evoseek.policy.source import tiny_policy_dir
from evoseek.report.view.pieces import TokenTexts
from evoseek.tiny.tokenizer import tiny_tokenizer


def test_tokens_are_shown_as_they_stand_in_the_middle_of_a_text():
    tokenizer, notes = tiny_tokenizer(), []
    tokens = TokenTexts(tiny_policy_dir() / "tokenizer.json", notes)
    ids = tokenizer.encode("<search> kalo 's mayor </search>")
    tokens.add(ids)
    assert "".join(tokens.texts[id] for id in ids).split() == tokenizer.decode(ids).split()
    assert notes == []


def test_without_a_tokenizer_there_is_a_note(tmp_path):
    notes = []
    tokens = TokenTexts(None, notes)
    (tmp_path / "tokenizer.json").write_text("{")
    TokenTexts(tmp_path / "tokenizer.json", notes).add([1])
    tokens.add([1])
    assert tokens.texts == {}
    assert "holds no tokenizer" in notes[0]
    assert "cannot be read as a tokenizer" in notes[1]
