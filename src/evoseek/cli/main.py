"""The command line. Commands load what they need when they run, so that `evoseek --help` is quick."""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek import __version__
from evoseek.errors import ConfigError, EvoseekError
from evoseek.training.interrupt import INTERRUPTED, end_on_interrupt

if TYPE_CHECKING:
    from evoseek.learner.checkpoint import Checkpoint

NO_ANSWER = 1  # the status of `ask` when the model gave none

# Threads that spin while they wait slow everything else on a busy machine down, many times over. Read by torch when it
# is imported, so it must be set before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# Help is plain text: as markup, [section] in it would be taken for a style, and not be shown.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tiny = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The tiny policy that comes with the package.")
app.add_typer(tiny, name="tiny")
simulator = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make a language model that plays the search engine (zerosearch)."
)
app.add_typer(simulator, name="simulator")
judge = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The model that says whether an answer is right.")
app.add_typer(judge, name="judge")
data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make questions fit for training.")
app.add_typer(data, name="data")
world = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The generated world.")
app.add_typer(world, name="world")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"evoseek {__version__}")
        raise typer.Exit


@app.callback()
def evoseek(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Language-model search agents that teach themselves."""


class StemmingChoice(StrEnum):
    """How words are reduced for searching."""

    none = "none"
    english = "english"


class VariantChoice(StrEnum):
    """Which tiny policy is built."""

    default = "default"
    reader = "reader"
    weak = "weak"
    web = "web"


class SplitChoice(StrEnum):
    """Whose names a world uses."""

    train = "train"
    evaluation = "evaluation"


RunDir = Annotated[Path | None, typer.Option(help="Directory of a run: its last checkpoint is used.")]
Index = Annotated[str | None, typer.Option(help="Directory of an index made by `evoseek index`.")]
Corpus = Annotated[
    str | None,
    typer.Option(
        "--index",
        "--corpus",
        help="Directory of an index made by `evoseek index`; in self-play questions are made from what is in it.",
    ),
]
Questions = Annotated[str | None, typer.Option(help="JSON lines: question, golden_answers.")]
Model = Annotated[str | None, typer.Option(help="`tiny` (or another that comes along), a directory, or a hub's name.")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", help="A TOML file of settings, or a recipe such as dr-zero/3b; the last one wins."),
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="A setting, as in learner.learning_rate=1e-4.")]
Seed = Annotated[int | None, typer.Option(help="Everything random follows from it.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object on stdout, and all else on stderr.")
]


@app.command()
def demo(
    run_dir: Annotated[Path, typer.Option(help="Where worlds, checkpoints and results go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    max_minutes: Annotated[float, typer.Option(help="Longest training time, above 0.")] = 5.0,
) -> None:
    """Watch the tiny policy learn to search, on a world made for it, in about five minutes."""
    if not max_minutes > 0:
        raise ConfigError(f"--max-minutes is {max_minutes}; it has to be above 0.")
    with end_on_interrupt():
        from evoseek.cli.demo import run_demo

    if not run_demo(run_dir, seed=seed, max_minutes=max_minutes, console=Console()):
        raise typer.Exit(INTERRUPTED)


@app.command()
def index(
    corpus: Annotated[Path, typer.Argument(help="A folder of texts, Markdown, HTML, PDF, or a JSONL file.")],
    directory: Annotated[Path, typer.Argument(help="Where the index goes.")],
    stemming: Annotated[StemmingChoice, typer.Option(help="Reduce words to their stems.")] = StemmingChoice.none,
    max_words: Annotated[int, typer.Option(help="Longest passage, in words.")] = 100,
    encoding: Annotated[
        str | None, typer.Option(help="Of files that are not UTF-8, as in shift_jis. Default: it is guessed.")
    ] = None,
) -> None:
    """Index a corpus for searching; says what was skipped and why."""
    from evoseek.cli.index import build_index

    build_index(corpus, directory, stemming=stemming.value, max_words=max_words, encoding=encoding, console=Console())


@app.command()
def search(
    directory: Annotated[Path, typer.Argument(help="An index.")],
    query: Annotated[str, typer.Argument()],
    k: Annotated[int, typer.Option("-k", min=1, help="How many passages.")] = 5,
    json: Json = False,
) -> None:
    """Search an index."""
    from evoseek.cli.index import search_index

    search_index(directory, query, k=k, console=Console(), as_json=json)


@app.command()
def train(
    run_dir: Annotated[Path, typer.Option(help="Where the run goes. Given alone, it is resumed.")],
    system: Annotated[
        str | None,
        typer.Argument(
            help="search-r1 or dspo (from questions), zerosearch (with a simulated engine), deepresearcher (on the "
            "web), dr-zero or ssp (self-play, from a corpus alone). Default: what --config says, or search-r1."
        ),
    ] = None,
    index: Corpus = None,
    questions: Questions = None,
    model: Model = None,
    steps: Annotated[int | None, typer.Option(help="Steps in all.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Train a policy. Ctrl-C finishes the step and saves; --run-dir alone resumes the run, with its own settings."""
    from evoseek.cli.settings import training_settings

    options = {
        "search.index": index,
        "questions.path": questions,
        "policy.model": model,
        "run.steps": steps,
        "run.seed": seed,
    }
    given = training_settings(run_dir, config or (), options=options, sets=set_ or (), system=system)
    with end_on_interrupt():
        from evoseek.cli.following import following
        from evoseek.cli.train import train_together
        from evoseek.runs import RunDirectory

    run, quiet = RunDirectory(run_dir), os.environ.get("RANK", "0") != "0"
    settings = following(given.read(), run=run, console=Console(quiet=quiet))
    if not train_together(settings, run, console=Console()):
        raise typer.Exit(INTERRUPTED)


@app.command()
def propose(
    index: Annotated[str, typer.Argument(help="Directory of an index made by `evoseek index`: the corpus.")],
    out: Annotated[Path, typer.Argument(help="The JSONL file to write. The same command goes on with it.")],
    system: Annotated[
        str | None,
        typer.Option(
            help="ssp: backwards from answers in the corpus, verified from the passages found; dr-zero: forwards from "
            "passages, unverified without --set verification.from_passages=true. Default: the run's, --config's or ssp."
        ),
    ] = None,
    model: Model = None,
    count: Annotated[int, typer.Option(min=1, help="How many questions.")] = 100,
    max_proposals: Annotated[int | None, typer.Option(min=1, help="Default: 20 a question.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Directory of a run of self-play: its proposer and solver are used.")
    ] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Write questions with answers, evidence and the solver's pass rate from a corpus. Ctrl-C leaves a usable file."""
    from evoseek.cli.settings import given_settings
    from evoseek.search.lexical import check_index

    given = given_settings(
        "propose",
        run_dir,
        config or (),
        options={"search.index": index, "policy.model": model, "run.seed": seed},
        sets=set_ or (),
        system=system,
        fallback="ssp",
    )
    check_index(given.read(light=True).search.index, setting="search.index")
    with end_on_interrupt():
        from evoseek.cli.propose import propose as propose_questions

    checkpoint = _checkpoint(run_dir)
    if not propose_questions(
        given.read(), checkpoint, out, count=count, max_proposals=max_proposals, console=Console()
    ):
        raise typer.Exit(INTERRUPTED)


@app.command("eval")
def evaluate(
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    model: Model = None,
    temperature: Annotated[float | None, typer.Option(help="0: greedy. Default: as in training.")] = None,
    no_search: Annotated[bool, typer.Option("--no-search", help="Answer without any tool.")] = False,
    limit: Annotated[int | None, typer.Option(help="Only the first so many. Default: evaluation.limit.")] = None,
    json: Json = False,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Score a policy on questions, each asked exactly once; with 95 % intervals, by number of hops."""
    from evoseek.cli.settings import check_evaluation, given_settings

    options = {
        "evaluation.path": questions,
        "evaluation.index": index,
        "evaluation.temperature": temperature,
        "evaluation.limit": limit,
        "policy.model": model,
    }
    given = given_settings("eval", run_dir, config or (), options=options, sets=set_ or ())
    check_evaluation(given.read(light=True), search=not no_search)
    with end_on_interrupt():
        from evoseek.cli.ask import evaluate as evaluate_agent
        from evoseek.cli.following import following

    settings = following(given.read(), console=Console(stderr=True))
    evaluate_agent(settings, _checkpoint(run_dir), search=not no_search, console=Console(stderr=json), as_json=json)


@app.command()
def ask(
    question: Annotated[str, typer.Argument()],
    run_dir: RunDir = None,
    index: Index = None,
    model: Model = None,
    json: Json = False,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask a policy, or the model of [asked]: prints the answer, the searches made and the passages it rests on.

    Without an answer: what the model wrote, and status 1.
    """
    from evoseek.cli.settings import check_asking, given_settings

    options = {"search.index": index, "policy.model": model}
    given = given_settings("ask", run_dir, config or (), options=options, sets=set_ or ())
    check_asking(given.read(light=True), question, model=model)
    with end_on_interrupt():
        from evoseek.cli.ask import ask as ask_model

    if not ask_model(given.read(), _checkpoint(run_dir), question, console=Console(stderr=json), as_json=json):
        raise typer.Exit(NO_ANSWER)


@app.command()
def export(
    source: Annotated[str, typer.Argument(help="A run, whose last checkpoint is taken, or a policy: see --model.")],
    directory: Annotated[Path, typer.Argument(help="Where the plain model goes.")],
) -> None:
    """Write a policy as a plain model directory, an adapter merged into its base."""
    from evoseek.cli.new_file import check_new
    from evoseek.cli.settings import check_model

    check_new(directory)
    check_model(source, setting="The run or policy")
    with end_on_interrupt():
        from evoseek.cli.export import export as export_policy

    export_policy(source, directory, console=Console())


@judge.command()
def check(
    cases: Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers, answer, correct (true, false).")],
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask the judge that the settings name (judge.model) about labelled answers, and say how far it agrees."""
    from evoseek.cli.settings import given_settings
    from evoseek.corpus.judged_answers import load_judged_answers

    given = given_settings("judge check", None, config or (), options={}, sets=set_ or ())
    labelled = load_judged_answers(cases)
    given.read(light=True).judge.check("judge")
    with end_on_interrupt():
        from evoseek.cli.judge import check_judge
        from evoseek.env.chats import make_chat

    settings = given.read()
    chat, prompts = make_chat(settings.judge, section="judge", seed=settings.run.seed, device=settings.policy.device)
    check_judge(chat, prompts, labelled, console=Console())


@tiny.command()
def build(
    directory: Annotated[Path, typer.Argument(help="Where the policy goes.")],
    work: Annotated[Path, typer.Option(help="Where checkpoints go; the same command resumes.")] = Path("runs/tiny"),
    variant: Annotated[
        VariantChoice, typer.Option(help="default, reader (reads better), weak (proposes badly) or web (browses).")
    ] = VariantChoice.default,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
) -> None:
    """Train the tiny policy from scratch, on worlds of the pretraining split."""
    with end_on_interrupt():
        from evoseek.cli.tiny import build_tiny

    if not build_tiny(directory, work, variant=variant.value, steps=steps, seed=seed, console=Console()):
        raise typer.Exit(INTERRUPTED)


Searches = Annotated[Path, typer.Argument(help="Searches: a file of JSON lines that `simulator collect` wrote.")]
WorldCard = Annotated[
    Path | None, typer.Option(help="world.json of the generated world that the searches come from: go by its truth.")
]


@simulator.command("collect")
def collect_searches(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write. The same command goes on with it.")],
    run_dir: RunDir = None,
    index: Index = None,
    questions: Questions = None,
    model: Model = None,
    pages: Annotated[int, typer.Option(min=1, help="Pages of results of each query that are kept.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Roll a policy out on questions, with a real index; write what its searches find (search.top_k a page)."""
    from evoseek.cli.settings import given_settings
    from evoseek.search.lexical import check_index

    options = {"search.index": index, "questions.path": questions, "policy.model": model, "run.seed": seed}
    given = given_settings(
        "simulator collect", run_dir, config or (), options=options, sets=set_ or (), fallback="zerosearch"
    )
    check_index(given.read(light=True).search.index, setting="search.index")
    with end_on_interrupt():
        from evoseek.cli.simulator import collect_searches as collect

    if not collect(given.read(), _checkpoint(run_dir), out, pages=pages, limit=limit, console=Console()):
        raise typer.Exit(INTERRUPTED)


@simulator.command("label")
def label_searches(
    searches: Searches,
    out: Annotated[Path, typer.Argument(help="The JSONL file to write. The same command goes on with it.")],
    world: WorldCard = None,
    model: Annotated[str | None, typer.Option(help="The model that judges, as in judge.model.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Label searches useful or noisy: do their results answer the query? By the settings of judge, or by --world."""
    from evoseek.cli.settings import given_settings

    if world is not None and model is not None:
        raise ConfigError("--model names a judge, but with --world nobody is asked: it is truth that labels. Give one.")
    options = {"judge.model": model, "run.seed": seed}
    given = given_settings(
        "simulator label", None, config or (), options=options, sets=set_ or (), fallback="zerosearch"
    )
    if world is None:
        given.read(light=True).judge.check("judge")
    with end_on_interrupt():
        from evoseek.cli.simulator import label_searches as label

    if not label(given.read(), searches, out, world=world, console=Console()):
        raise typer.Exit(INTERRUPTED)


@simulator.command("tune")
def tune_simulator(
    searches: Searches,
    directory: Annotated[Path, typer.Argument(help="Where the tuned model goes.")],
    work: Annotated[Path, typer.Option(help="Where checkpoints go; the same command resumes.")] = Path(
        "runs/simulator"
    ),
    model: Model = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 300,
    learning_rate: Annotated[float | None, typer.Option(help="Falls to 0 at the last step.")] = None,
    tokens_per_step: Annotated[int, typer.Option(min=1, help="Prompts counted too.")] = 16_384,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Tune a model (policy.model, with lora.rank an adapter of it) to write the results of labelled searches."""
    from evoseek.cli.settings import given_settings, simulator_settings

    options = {"policy.model": model, "learner.learning_rate": learning_rate, "run.seed": seed}
    given = given_settings(
        "simulator tune", None, config or (), options=options, sets=set_ or (), fallback="zerosearch"
    )
    with end_on_interrupt():
        from evoseek.cli.simulator import tune_simulator as tune

    if not tune(
        simulator_settings(given),
        searches,
        directory,
        work,
        steps=steps,
        tokens_per_step=tokens_per_step,
        console=Console(),
    ):
        raise typer.Exit(INTERRUPTED)


@simulator.command("check")
def check_simulator(
    searches: Searches,
    model: Annotated[str | None, typer.Option(help="The simulator, as in simulator.model.")] = None,
    world: WorldCard = None,
    count: Annotated[int, typer.Option(min=2, help="How many queries.")] = 500,
    policy: Annotated[
        str | None,
        typer.Option(help="A policy that answers --questions with the simulator: a model as in policy.model."),
    ] = None,
    questions: Questions = None,
    index: Annotated[str | None, typer.Option(help="A real index, on which the policy answers them as well.")] = None,
    output: Annotated[Path | None, typer.Option(help="A JSON file to write the numbers to.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Ask a simulator for useful and noisy results of held-out searches: are they so, and like the real engine's?

    With --policy and --questions also: what does a policy score that searches with it?
    """
    from evoseek.cli.settings import given_settings, simulator_settings

    if policy is None and (questions or index):
        raise ConfigError("--questions and --index are for a policy to answer with the simulator. Name one: --policy.")
    options = {
        "simulator.model": model,
        "policy.model": policy,
        "evaluation.path": questions,
        "evaluation.index": index,
        "run.seed": seed,
    }
    given = given_settings(
        "simulator check", None, config or (), options=options, sets=set_ or (), fallback="zerosearch"
    )
    with end_on_interrupt():
        from evoseek.cli.simulator_check import check

    with_policy = policy is not None
    check(
        simulator_settings(given),
        searches,
        world=world,
        count=count,
        output=output,
        with_policy=with_policy,
        console=Console(),
    )
    from evoseek.cli.settings import given_settings


Source = Annotated[Path, typer.Argument(help="JSON lines: question, golden_answers.")]
Kept = Annotated[Path, typer.Argument(help="The JSONL file for what is kept. The same command goes on with it.")]


@data.command("filter")
def filter_data(
    questions: Source,
    out: Kept,
    model: Annotated[str | None, typer.Option(help="The model that judges, as in judge.model.")] = None,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Sort out questions that are time-sensitive, subjective or harmful, by the model in the settings of judge."""
    from evoseek.cli.settings import given_settings
    from evoseek.training.sources import read_questions

    read_questions(str(questions), setting="the file of questions")
    options = {"judge.model": model, "run.seed": seed}
    given = given_settings("data filter", None, config or (), options=options, sets=set_ or ())
    given.read(light=True).judge.check("judge")
    with end_on_interrupt():
        from evoseek.cli.data import filter_questions

    if not filter_questions(given.read(), questions, out, console=Console()):
        raise typer.Exit(INTERRUPTED)


@data.command()
def contamination(
    questions: Source,
    out: Kept,
    model: Model = None,
    evaluation: Annotated[
        list[Path] | None, typer.Option(help="A file of evaluation questions; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Closed-book answers of --model; 0: none is asked.")] = 10,
    words: Annotated[int, typer.Option(min=1, help="Shared words in a row that are an overlap.")] = 13,
    likeness: Annotated[float, typer.Option(help="From which two questions are alike (Jaccard, MinHash).")] = 0.8,
    seed: Seed = None,
    config: ConfigFiles = None,
    set_: Sets = None,
) -> None:
    """Sort out questions that a model answers without searching, or that overlap with evaluation sets."""
    from evoseek.cli.settings import given_settings

    options = {"policy.model": model, "run.seed": seed}
    given = given_settings("data contamination", None, config or (), options=options, sets=set_ or ())
    with end_on_interrupt():
        from evoseek.cli.data import find_contamination

    finished = find_contamination(
        given.read(),
        questions,
        out,
        evaluation=evaluation or (),
        samples=samples,
        words=words,
        likeness=likeness,
        console=Console(),
    )
    if not finished:
        raise typer.Exit(INTERRUPTED)


@data.command("mix")
def mix_data(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    sources: Annotated[list[str], typer.Option("--from", help="FILE=SHARE, as in nq.jsonl=1; once for each file.")],
    count: Annotated[int, typer.Option(min=1, help="How many questions.")],
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
) -> None:
    """Draw questions from several files in a ratio, as --from nq.jsonl=1 --from hotpotqa.jsonl=3."""
    from evoseek.cli.mix import mix_questions

    shares: dict[Path, float] = {}
    for text in sources:
        name, _, share = text.rpartition("=")
        try:
            shares[Path(name)] = float(share)
        except ValueError as error:
            raise ConfigError(f"--from is {text!r}; expected FILE=SHARE, as in nq.jsonl=1.") from error
    if len(shares) < len(sources):
        raise ConfigError("--from names a file twice. Give each file once, with its share.")
    mix_questions(shares, out, count=count, seed=seed, console=Console())


@world.command("serve")
def serve_world(
    entities: Annotated[int, typer.Option(help="How many articles, from 200.")] = 2000,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    split: Annotated[SplitChoice, typer.Option(help="Whose names it uses.")] = SplitChoice.train,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8765,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="name=share, as in hang=0.01; search.NAME or page.NAME for one of them."),
    ] = None,
    questions: Annotated[Path | None, typer.Option(help="A new JSONL file for questions about it.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many questions.")] = 1000,
) -> None:
    """Serve a generated world as a web site with a search API, on this machine, until Ctrl-C."""
    from evoseek.cli.world import serve_world as serve

    serve(
        entities=entities,
        seed=seed,
        split=split.value,
        port=port,
        faults=fault or (),
        questions=questions,
        count=count,
        console=Console(),
    )


@app.command()
def recipes(name: Annotated[str | None, typer.Argument(help="A recipe, whose file is printed.")] = None) -> None:
    """List the recipes that --config takes by name, or print one of them."""
    from evoseek.cli.recipes import show_recipes

    show_recipes(name, console=Console())


@app.command()
def parts(
    kind: Annotated[str | None, typer.Argument(help="Kind of part, such as loss or reward.")] = None,
    name: Annotated[
        str | None, typer.Argument(help="Name of a part, or package.module:Name of one of your own.")
    ] = None,
) -> None:
    """List what can be chosen: the kinds of parts, the parts of a kind, or every setting of a part with its default."""
    from evoseek.cli.parts import show_parts

    show_parts(kind, name, console=Console())


def _checkpoint(run_dir: Path | None) -> Checkpoint | None:
    """The last checkpoint of a run that has one; None without a run."""
    with end_on_interrupt():
        from evoseek.learner.checkpoint import latest_checkpoint

    return None if run_dir is None else latest_checkpoint(run_dir)


def main() -> None:
    """Entry point: an error becomes one paragraph and status 2, a warning one line, Ctrl-C status 130."""
    status = _run()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Torch's threads for talking to other processes may outlive it when the interpreter is taken down, and then
        # abort the process, with everything done and closed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run() -> int:
    """The command of the command line; returns its exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except SystemExit as ended:  # how typer ends
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except EvoseekError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("EVOSEEK_TRACEBACK") == "1":
            traceback.print_exc()
        message = textwrap.shorten(str(error), 1000) or "no message"
        return _fail(
            f"{type(error).__name__}: {message} (this is a bug or an unforeseen input; set EVOSEEK_TRACEBACK=1 for "
            "details)"
        )
    return 0


def _fail(message: str) -> int:
    if _speaks():
        print(f"evoseek: {message}", file=sys.stderr, flush=True)
    return 2


def _speaks() -> bool:
    """Of several processes of a run, of which one fails and with it the others, the first one tells."""
    if "RANK" not in os.environ:
        return True
    from evoseek.learner.distributed import fails_first

    return fails_first()


def _show_warning(message: Warning | str, *_: object) -> None:
    """In place of `warnings.showwarning`, which adds a line of source code."""
    print(f"evoseek: warning: {' '.join(str(message).split())}", file=sys.stderr)
