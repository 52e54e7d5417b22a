"""Train an agent on a folder of documents, without labelled questions: Dr. Zero writes its own.
Needs a folder documents/; without one it writes made-up documents, in the words of the tiny model."""

from pathlib import Path

from evoseek import Run, build_index
from evoseek.world.world import World

documents = Path("documents")
if not documents.exists():
    documents.mkdir()
    for passage in World.generate(seed=0, entities=200, split="train").passages():
        (documents / f"{passage.title}.txt").write_text(passage.text, encoding="utf-8")

build_index(documents, "index")
run = Run(
    "dr-zero",
    "run",
    settings={
        "search.index": "index",
        "policy.model": "tiny",  # reads made-up documents alone; for your own: "Qwen/Qwen2.5-3B-Instruct"
        "dr_zero.iterations": 1,  # these six are small, so that the example takes a minute; leave them out
        "dr_zero.proposer_steps": 1,
        "dr_zero.writing_steps": 1,
        "dr_zero.passages_per_writing_step": 24,
        "dr_zero.solver_steps": 2,
        "questions.per_step": 4,
    },
)
print("steps:", run.train())  # if interrupted, the same program resumes
print(run.ask("who is the employer of Humi Jeje ?").text)
