"""The keys of a server, from a file or the environment."""

import hashlib

import pytest
from tests.raising import raises

from evoseek.serve.keys import Key, find_key, is_loopback, read_keys

KEYS = ["first-key-0123456789", "second-key-0123456789"]
DIGEST = hashlib.sha256(KEYS[0].encode()).hexdigest()


def test_keys_are_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("EVOSEEK_KEY", raising=False)
    file = tmp_path / "keys"
    file.write_text("\n".join([KEYS[0], "", f"  {KEYS[1]} "]))
    assert read_keys(file, host="0.0.0.0") == list(map(Key.of, KEYS))
    assert read_keys(None, host="127.0.0.1") == []
    monkeypatch.setenv("EVOSEEK_KEY", KEYS[1])
    assert read_keys(None, host="0.0.0.0") == [Key.of(KEYS[1])]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "serve.no_key"),
        ("short", "serve.weak_key"),
        ("schlüssel-0123456789", "serve.weak_key"),
        (None, "serve.keys_unreadable"),
    ],
)
def test_keys_that_are_none(tmp_path, text, code):
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)
    with raises(code):
        read_keys(file, host="127.0.0.1")


def test_an_open_address_needs_a_key(monkeypatch):
    monkeypatch.delenv("EVOSEEK_KEY", raising=False)
    with raises("serve.open"):
        read_keys(None, host="0.0.0.0")
    assert [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "example.org")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_table_has_digests_with_folders_and_rates(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text(f'[sales]\nsha256 = "{DIGEST}"\nfolders = ["sales", "a/b.md"]\nper_minute = 30\n')
    (key,) = keys = read_keys(file, host="0.0.0.0")
    assert (key.name, key.folders, key.per_minute) == ("sales", ("sales", "a/b.md"), 30)
    assert find_key(keys, f"Bearer {KEYS[0]}") is key
    assert KEYS[0] not in file.read_text()
    for header in ("", KEYS[0], f"Basic {KEYS[0]}", f"Bearer {KEYS[1]}", f"Bearer {DIGEST}"):
        assert find_key(keys, header) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a]\n", "sha256"),
        (f'[a]\nsha256 = "{KEYS[0]}"\n', "sha256"),
        (f'[a]\nsha256 = "{DIGEST}"\nfolders = []\n', "folders"),
        (f'[a]\nsha256 = "{DIGEST}"\nfolders = ["/etc"]\n', "folders"),
        (f'[a]\nsha256 = "{DIGEST}"\nfolders = "sales"\n', "folders"),
        (f'[a]\nsha256 = "{DIGEST}"\nfolder = ["sales"]\n', "folder"),
        (f'[a]\nsha256 = "{DIGEST}"\nper_minute = 0\n', "per_minute"),
        ('sha256 = "x"\n', "table for each key"),
        ("[a\n", "table for each key"),
        (f'[a]\nsha256 = "{DIGEST}"\nfolders = ["sales"]\n[b]\nsha256 = "{DIGEST}"\n', "two tables have the same key"),
    ],
)
def test_a_table_that_limits_nothing_as_it_is_meant_to_is_refused(tmp_path, text, words):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with raises("serve.keys_invalid", match=words):
        read_keys(file, host="127.0.0.1")


def test_the_lines_of_a_table_are_no_keys(tmp_path):
    """Anybody could guess `folders=["sales"]`, which would then see everything."""
    file = tmp_path / "keys.conf"
    file.write_text(f'[people-of-the-sales]\nsha256="{DIGEST}"\nfolders=["sales"]\n')
    with raises("serve.keys_invalid", match="does not end in .toml"):
        read_keys(file, host="127.0.0.1")
    (key,) = read_keys(file.rename(tmp_path / "keys.TOML"), host="127.0.0.1")
    assert key.folders == ("sales",)
