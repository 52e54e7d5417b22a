"""Files as an earlier release left them: begun with a setting that is gone, and without one that came later."""

import json
from pathlib import Path

from evoseek.storage.files import json_digest


def begun_earlier(out: Path) -> None:
    """Rewrite the state of a file that resumes, with the settings of release 0.1."""
    path = out.with_name(f"{out.name}.state.json")
    state = json.loads(path.read_text(encoding="utf-8"))
    del state["sha256"], state["settings"]["cold_start"]["writer"]
    state["settings"]["run"]["rollbacks"] = 0
    path.write_text(json.dumps({**state, "sha256": json_digest(state)}, ensure_ascii=False), encoding="utf-8")
