import pytest

from evoseek.errors import DataError
from evoseek.world.world import World, load_world, save_world_card


def test_a_world_comes_back_from_its_card(tmp_path):
    world = World.generate(3, 250, "evaluation")
    save_world_card(tmp_path / "world.json", world)
    again = load_world(tmp_path / "world.json")
    assert list(again.documents()) == list(world.documents())
    assert again.split == "evaluation"
    assert again.questions(20, seed=1) == world.questions(20, seed=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Invalid JSON"),
        ('{"seed": 1, "entities": 250, "split": "train"}', "style"),
        ('{"seed": "1", "entities": 250, "split": "train", "style": "plain"}', "seed"),
        ('{"seed": 1, "entities": 250, "split": "holidays", "style": "plain"}', "split"),
        ('{"seed": 1, "entities": 250, "split": "train", "style": "plain", "more": 1}', "more"),
    ],
)
def test_a_file_that_is_no_card_is_refused(tmp_path, text, problem):
    path = tmp_path / "world.json"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"not the card of a generated world: .*{problem}.*Expected a world.json"):
        load_world(path)


def test_a_card_that_is_missing_or_of_no_world_is_refused(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        load_world(tmp_path / "world.json")
    (tmp_path / "world.json").write_text('{"seed": 1, "entities": 5, "split": "train", "style": "plain"}')
    with pytest.raises(DataError, match="200 to 1,000,000"):
        load_world(tmp_path / "world.json")
