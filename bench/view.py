"""The viewer's page with many trajectories, in headless Chromium: first paint, and the list as it is scrolled.

    python bench/view.py [--trajectories 10000] [--run DIR]

Without --run the trajectories are made: a search-r1 run whose groups have eight attempts of two to five turns. Needs
playwright and chromium. Measured are

    write          seconds in which the page and its data are written
    page, data     megabytes of the page, and of the folder beside it
    paint          milliseconds from opening the file to the first paint with content (the list is shown at once)
    frames         of scrolling through the whole list in 300 steps, a step a frame: milliseconds of the median frame,
                   of the 99th percentile and of the longest; a frame above 50 ms is seen as a stall
    work           milliseconds of processor time of the page's main thread a frame, whatever else the machine does
    choose         milliseconds from a key press to the episode that it chooses, the median of 20
    filter         milliseconds from typing a word to the list of what holds it
"""

import argparse
import json
import random
import shutil
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from playwright.sync_api import CDPSession, Page, sync_playwright

from evoseek.report.view.html import data_folder, make_page
from evoseek.report.view.source import RunSource

WORDS = ("what", "is", "the", "capital", "of", "mayor", "spouse", "founder", "born", "river", "north", "film", "year")
SCROLL = """() => new Promise((resolve) => {
  const box = document.querySelector(".rows"), gaps = [], end = box.scrollHeight - box.clientHeight;
  let step = 0, before = performance.now();
  const next = (now) => {
    gaps.push(now - before);
    before = now;
    if (step > 300) return resolve(gaps.slice(2));
    box.scrollTop = end * step++ / 300;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})"""
PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime"""


def trajectory(number: int, rng: random.Random) -> dict:
    group, member = divmod(number, 8)
    step = 1 + group // 20
    ended = [rng.choice(WORDS) for _ in range(3)]

    def segment(kind, length):
        ids = [rng.randrange(len(WORDS)) for _ in range(length)]
        made = {"kind": kind, "text": " ".join(WORDS[id] for id in ids), "ids": ids}
        return made | ({"logprobs": [-rng.random() for _ in ids]} if kind == "action" else {})

    searches = rng.randrange(1, 5)
    turns = [part for _ in range(searches) for part in (segment("action", 24), segment("observation", 150))]
    query = {"name": "search", "arguments": {"query": " ".join(ended)}}
    passages = [{"id": f"d{n}#0", "document_id": f"d{n}", "title": f"Title {n}", "text": "x " * 80} for n in range(3)]
    return {
        "step": step,
        "group": f"step-{step:06d}/q{group}",
        "outcome": {"reward": float(rng.random() < 0.4), "parts": {"exact_match": 1.0}},
        "id": f"step-{step:06d}/q{group}/{member}",
        "role": "solver",
        "question": {
            "id": f"q{group}",
            "text": f"{' '.join(random.Random(group).choices(WORDS, k=9))} {group} ?",
            "golden_answers": ["north"],
            "metadata": {"hops": 1 + group % 4},
        },
        "stop_reason": "answered",
        "answer": " ".join(ended),
        "failure": None,
        "policy_version": step,
        "segments": [segment("prompt", 60), *turns, segment("action", 12)],
        "actions": [*({"tool_calls": [query]} for _ in range(searches)), {"answer": " ".join(ended)}],
        "tool_results": [{"call": query, "text": "shown", "passages": passages} for _ in range(searches)],
    }


def make_run(directory: Path, count: int) -> Path:
    rng = random.Random(0)
    directory.mkdir()
    with (directory / "trajectories.jsonl").open("w") as file:
        file.writelines(json.dumps(trajectory(number, rng)) + "\n" for number in range(count))
    rows = ({"step": step, "reward": 0.4, "entropy": 1 / step} for step in range(1, count // 160 + 2))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "config.json").write_text('{"run": {"system": "search-r1"}}')
    return directory


def choosing(page: Page) -> list[float]:
    """Milliseconds until the episode of the next row is shown, again and again."""
    page.get_by_role("listbox").focus()
    times = []
    for _ in range(20):
        before = page.locator("#detail .meta").first.inner_text()
        started = time.perf_counter()
        page.keyboard.press("PageDown")
        while page.locator("#detail .meta").first.inner_text() == before:
            pass
        times.append(1000 * (time.perf_counter() - started))
    return times


def busy(clock: CDPSession) -> float:
    """Seconds of processor time that the page's main thread has worked."""
    return next(
        one["value"] for one in clock.send("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration"
    )


def measure(path: Path) -> None:
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        paints = []
        for _ in range(5):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{path.absolute().as_uri()}#trajectories")
            page.wait_for_selector(".row")
            page.wait_for_selector("#detail h2")
            paints.append(page.evaluate(PAINT))
            if len(paints) < 5:
                page.close()
        print(f"paint   {median(paints):.0f} ms (median of 5; from {min(paints):.0f} to {max(paints):.0f})")
        clock = page.context.new_cdp_session(page)
        clock.send("Performance.enable", {"timeDomain": "threadTicks"})
        worked = busy(clock)
        frames = page.evaluate(SCROLL)
        worked = busy(clock) - worked
        high, stalls = quantiles(frames, n=100)[98], sum(frame > 50 for frame in frames)
        print(f"frames  {median(frames):.1f} ms median, {high:.1f} 99th percentile, {max(frames):.1f} longest")
        print(f"stalls  {stalls} of {len(frames)} frames above 50 ms")
        print(f"work    {1000 * worked / len(frames):.2f} ms a frame")
        print(f"choose  {median(choosing(page)):.0f} ms (median of 20)")
        started = time.perf_counter()
        page.locator("#search").fill("capital mayor")
        before = page.locator(".count").inner_text()
        while page.locator(".count").inner_text() == before:
            pass
        print(f"filter  {1000 * (time.perf_counter() - started):.0f} ms, of which 120 are waited for more letters")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--run", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        run = given.run or make_run(Path(folder) / "run", given.trajectories)
        path = Path(folder) / "view.html"
        started = time.perf_counter()
        make_page([RunSource.open(run)], data_folder(path).name).write(path)
        print(f"write   {time.perf_counter() - started:.1f} s")
        data = sum(file.stat().st_size for file in data_folder(path).glob("*")) if data_folder(path).exists() else 0
        print(f"page    {path.stat().st_size / 1e6:.2f} MB, data {data / 1e6:.2f} MB")
        measure(path)


if __name__ == "__main__":
    main()
