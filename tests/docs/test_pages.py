"""What is read from a page, with a page made for it."""

from pathlib import Path
from runpy import run_path

PAGES = run_path(str(Path(__file__).with_name("pages.py")))
PAGE = """# A page, with a title

See [the next](next.md#two-words), ![a picture](a.png), [elsewhere](https://example.org) and `[no](link)`.
Run `evoseek eval
--samples 4`.

    OMP_NUM_THREADS=1 evoseek index docs/ my-index   # a comment
    evoseek ask \\
      "what is it?"

- a list
    that goes on

```toml
[run]
# [not](a-link)
```

```console
$ cd mine && evoseek train --steps 1
step 1
torchrun --nnodes 2 -m evoseek train ...
```
"""


def test_blocks_are_fenced_or_indented_after_an_empty_line():
    assert [(block.language, len(block.text.splitlines())) for block in PAGES["blocks"](PAGE)] == [
        ("", 3),
        ("toml", 2),
        ("console", 3),
    ]


def test_commands_are_whole_and_without_comments_variables_and_output():
    assert list(PAGES["commands"](PAGE)) == [
        ["evoseek", "index", "docs/", "my-index"],
        ["evoseek", "ask", "what is it?"],
        ["evoseek", "train", "--steps", "1"],
        ["evoseek", "train", "..."],
    ]
    assert list(PAGES["mentioned"](PAGE)) == [["evoseek", "eval", "--samples", "4"]]


def test_links_and_anchors():
    assert PAGES["links"](PAGE) == ["next.md#two-words", "a.png"]
    assert PAGES["anchors"](PAGE) == {"a-page-with-a-title"}
