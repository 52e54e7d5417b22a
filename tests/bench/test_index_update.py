"""Random changes of a folder: an update is a fresh build, and a killed one is the old index or the new one."""

import pytest

from evoseek.search.indexing import IndexPlan


@pytest.mark.parametrize("engine", ["lexical", "hybrid"])
def test_updates_are_fresh_builds(script, tmp_path, engine):
    made = script("index_update").changes(tmp_path, 12, 5, IndexPlan(engine=engine, max_words=12))
    assert sum(made.counts.values()) == 12


@pytest.mark.slow
def test_a_killed_update_leaves_the_old_index_or_the_new_one(script, tmp_path):
    assert sum(script("index_update").kills(tmp_path, 6, 3, IndexPlan(max_words=12)).values()) == 6
