import importlib

import pytest

from evoseek.errors import ConfigError
from evoseek_tinker.sdk import NewModel, RemoteModel, ServiceError, check_version, find_key, load_sdk
from evoseek_tinker.testing import Done, ScriptedTinker


@pytest.mark.parametrize("version", ["0.24.1", "0.38.0", "0.99"])
def test_versions_that_are_known_are_taken(version):
    check_version(version)


@pytest.mark.parametrize("version", ["0.3.0", "0.23.4", "1.0.0", "2.1"])
def test_other_versions_are_refused(version):
    with pytest.raises(ConfigError, match=rf"is version {version}.*from 0\.24 up to 1\.0"):
        check_version(version)


def test_without_the_package_the_error_says_how_to_get_it():
    if importlib.util.find_spec("tinker"):
        pytest.skip("it is installed")
    with pytest.raises(ConfigError, match=r"pip install tinker"):
        load_sdk()


def test_a_key_comes_from_the_environment_and_a_server_of_ones_own_may_need_none(monkeypatch):
    monkeypatch.setenv("MY_KEY", "tml-mine")
    assert find_key("MY_KEY", "") == find_key("MY_KEY", "http://127.0.0.1:1") == "tml-mine"
    monkeypatch.delenv("MY_KEY")
    assert find_key("MY_KEY", "http://127.0.0.1:1").startswith("tml-")
    with pytest.raises(ConfigError, match="MY_KEY"):
        find_key("MY_KEY", "")


class Short(ScriptedTinker):
    """Forgets the last logprob of every prompt."""

    def future(self, name, work):
        done = super().future(name, work)
        return Done(done.value[:-1]) if name == "compute_logprobs" else done


def model(service, **options):
    return RemoteModel(service, NewModel("tiny", 2, 0), api_key="tml-secret", **options)


def test_logprobs_of_the_base_may_come_with_or_without_the_first_token():
    """The service leaves a place for the first token, which has none; SkyRL does not."""

    class Unpadded(ScriptedTinker):
        def future(self, name, work):
            done = super().future(name, work)
            return Done(done.value[1:]) if name == "compute_logprobs" else done

    rows = [[5, 9, 11, 12], [7, 8]]
    for service in (ScriptedTinker(), Unpadded()):
        one = model(service)
        one.adapted = False
        base = one.logprobs(rows)
        one.adapted = True
        assert base == [pytest.approx(row, abs=1e-5) for row in one.logprobs(rows)]  # a new adapter changes nothing


def test_logprobs_of_another_number_are_refused():
    one = model(Short())
    one.adapted = False
    with pytest.raises(ServiceError, match="gave 2 logprobs of a sequence, but 3 were expected"):
        one.logprobs([[5, 9, 11, 12]])
