// An episode from its source to the attempts: source passage, proposal, question, verdicts, the solver's attempts.

function focusDetail() {
  document.querySelector("#detail h2")?.focus();
}

function stage(title, ...inside) {
  return el("li", { class: "stage" }, el("h3", {}, title), inside);
}

// The members of a rollout's episode by what they are. A question that is asked in a later step than it was written in
// brings its proposal along.
function episodeOf(one) {
  const run = runOf(one);
  const members = episodes()[run].get(value(one, "episode"));
  const role = (name) => members.filter((other) => value(other, "role") === name);
  let readings = role("reader"), proposers = role("proposer"), source = null;
  if (!proposers.length) {
    source = proposals()[run].get(questionOf(one).id) ?? null;
    if (source !== null) {
      proposers = [source];
      readings = episodes()[run].get(value(source, "episode")).filter((other) => value(other, "role") === "reader");
    }
  }
  const solvers = members.filter((other) => !["reader", "proposer"].includes(value(other, "role")));
  return { run, proposers, readings, solvers, written: source !== null ? value(source, "step") : null };
}

function sourceStage(detail) {
  if (!detail) return null;
  const task = detail.task ?? {};
  if (task.passage) {
    return stage("Source passage", el("p", {}, el("b", {}, prose(task.passage.title))), el("blockquote", {}, prose(task.passage.text)),
      el("p", { class: "meta" }, "passage ", prose(task.passage.id, "code"),
        task.requested > 0 && ` · ${task.requested} hops requested`, task.shown === false && " · it was not shown to the proposer"));
  }
  return stage("Task of the proposer", facts(Object.entries({ ...detail.metadata, ...task }).map(([name, given]) => [visible(name), prose(typeof given === "string" ? given : JSON.stringify(given))])));
}

function verdictStage(proposer, readings, solvers) {
  const rejected = proposer === undefined ? null : value(proposer, "rejected");
  const invalid = proposer === undefined ? null : value(proposer, "invalid");
  const verdict = rejected
    ? [el("span", { class: "mark none" }, "rejected"), ` ${visible(rejected).replaceAll("_", " ")}`, Object.hasOwn(index.meanings, rejected) ? `: ${index.meanings[rejected]}.` : "."]
    : invalid ? [el("span", { class: "mark invalid" }, "Invalid"), " A failure outside the policies ended the episode."]
      : [el("span", { class: "mark good" }, "accepted"), solvers.length ? "" : " Nobody has tried it in this step."];
  const name = (one) => (value(one, "id").endsWith("closed-book") ? "without any passage" : "from the proposer's passages");
  return stage("Filter and verification", el("p", {}, verdict),
    readings.length ? readings.map((one) => rolloutBlock(one, `Reading ${name(one)}: ${visible(value(one, "answer") ?? "no answer")}`, false))
      : el("p", { class: "meta" }, "No reading is recorded: verification was off, or a filter came first."));
}

function attemptTitle(one, place) {
  return [`Attempt ${place + 1}: `, el("span", { class: "untrusted" }, visible(value(one, "answer") ?? "no answer")),
    el("span", { class: "meta" }, ` ${value(one, "stop").replaceAll("_", " ")} · ${count(value(one, "searches"), "search", "searches")} · ${count(value(one, "tokens"), "token", "tokens")}`,
      value(one, "advantage") === null ? "" : ` · advantage ${signed(value(one, "advantage"))}`)];
}

async function episodeView(one) {
  const { run, proposers, readings, solvers, written } = episodeOf(one);
  const chosen = proposers.includes(one) ? one : proposers.at(-1);
  const proposal = chosen === undefined ? null : await detailOf(chosen);
  const asked = solvers.length ? questionOf(solvers[0]) : null;
  const stated = proposal?.actions?.findLast((action) => action.question !== undefined);
  const heading = asked?.text ?? stated?.question ?? questionOf(one).text;
  const stages = [
    sourceStage(proposal),
    proposers.length > 0 && stage("Proposer", written !== null && el("p", { class: "meta" }, `It was written in step ${written}.`),
      proposers.map((other) => rolloutBlock(other, ["Proposal", el("span", { class: "meta" }, ` ${value(other, "stop").replaceAll("_", " ")} · ${count(value(other, "searches"), "search", "searches")} · ${count(value(other, "tokens"), "token", "tokens")}`)], other === one || solvers.length === 0))),
    stage("Question and answer",
      el("p", { class: "question" }, prose(asked?.text ?? stated?.question ?? (proposal ? "No question was stated." : questionOf(one).text))),
      facts([["Golden answers", prose((asked?.golden ?? (proposal ? [stated?.answer ?? "–"] : questionOf(one).golden)).join(" | ") || "–")],
        value(one, "hops") !== null && ["Hops", number(value(one, "hops"))]].filter(Boolean))),
    proposers.length > 0 && verdictStage(chosen, readings, solvers),
    solvers.length > 0 && stage(`Solver: ${count(solvers.length, "attempt", "attempts")}, mean reward ${number(mean(solvers))}`, solvers.map((other, place) => rolloutBlock(other, attemptTitle(other, place), other === one))),
  ].filter(Boolean);
  return [
    el("h2", { tabindex: -1 }, prose(heading.slice(0, 400))),
    el("p", { class: "meta" }, [runs.length > 1 && runName(run), `step ${value(one, "step")}`, value(one, "role"), value(one, "id")].filter(Boolean).map(visible).join(" · ")),
    colourSelect(() => document.getElementById("detail")),
    el("ol", { class: "stages" }, stages),
    otherRun(one),
  ].filter(Boolean);
}

function mean(list) {
  const scored = list.map((one) => value(one, "reward")).filter((reward) => reward !== null);
  return scored.length ? scored.reduce((a, b) => a + b, 0) / scored.length : null;
}

function otherRun(one) {
  if (runs.length < 2) return null;
  const found = askedIn().get(questionOf(one).text)?.[1 - runOf(one)] ?? [];
  if (!found.length) return el("p", { class: "meta" }, `The other run was not asked this question.`);
  return el("section", { "aria-label": "The same question in the other run" }, el("h3", {}, `In the other run: ${runName(1 - runOf(one))}`),
    found.slice(-16).map((other, place) => rolloutBlock(other, [`step ${value(other, "step")} · `, attemptTitle(other, place)], false)));
}
