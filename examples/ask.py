"""Ask from a program: index documents, load the model once, and answer several questions with their sources.
Needs documents/, else makes a world. The tiny model knows the made-up words of that world alone."""

import asyncio
from pathlib import Path

from evoseek import Answerer, Run, build_index, make_world

index = "index"
if Path("documents").exists():
    build_index("documents", index)
else:
    make_world("world", entities=200)
    index = "world/index"

run = Run(settings={"search.index": index, "policy.model": "tiny"})  # Run(directory="run"): the policy of a run
with run.context() as context:  # run.ask(question) does the same for one question
    answerer = Answerer.of(context)
    for question in ("What is Humi Jeje's employer?", "What is Dozosu's mayor?"):
        answered = asyncio.run(answerer.answer_alone(question))
        print(f"{question} {answered.answer or 'Not found in the documents.'}")
        for passage in answered.trajectory.passages[:1]:
            print(f"  from {passage.citation}: {passage.text}")
