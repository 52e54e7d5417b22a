// One rollout, turn by turn: what the policy wrote, token by token if wanted, and what it was given.

const COLOURS = {
  none: "plain text",
  mask: "loss mask",
  advantage: "advantage",
  logprob: "sampler's log-probability",
  difference: "sampler and learner: difference of log-probabilities",
};
let colour = "none";

function legend(kind) {
  if (kind === "none") return "";
  if (kind === "mask") return ["trained on: ", el("span", { class: "token trained" }, "what the policy wrote"), "; not trained on: the prompt and what tools returned."];
  const scale = kind === "logprob" ? [["n5", "0.7 % or less"], ["n3", "14 %"], ["n1", "61 %"], ["zero", "certain"]]
    : kind === "advantage" ? [["n5", "−2 or less"], ["n2", "−0.8"], ["zero", "0"], ["p2", "+0.8"], ["p5", "+2 or more"]]
      : [["n5", "−0.1 or less"], ["n2", "−0.001"], ["zero", "below 0.00001"], ["p2", "+0.001"], ["p5", "+0.1 or more"]];
  const note = kind === "difference" ? "sampler minus learner: " : "";
  return [note, scale.flatMap(([name, text]) => [el("span", { class: `token ${name}` }, text), " "])];
}

// The class of a token's colour: p or n for the sign, 1 to 5 for the size.
function shade(kind, at) {
  if (at === null || at === undefined) return "unknown";
  const size = Math.abs(at);
  const degree = kind === "advantage" ? Math.ceil(size / 2 * 5)
    : kind === "logprob" ? Math.round(size)
      : size < 1e-5 ? 0 : Math.ceil(Math.log10(size) + 6);
  return degree < 1 ? "zero" : `${at < 0 ? "n" : "p"}${Math.min(5, degree)}`;
}

function valuesOf(detail, segment, start) {
  const own = detail.advantages;
  return (place) => ({
    advantage: Array.isArray(own) ? own[start + place] : own,
    logprob: segment.logprobs[place],
    difference: detail.differences?.[start + place],
  });
}

function tokensOf(detail, segment, start, texts) {
  const at = valuesOf(detail, segment, start);
  const known = segment.ids.length && segment.ids.every((id) => Object.hasOwn(texts, id));
  return el("span", { class: "untrusted tokens" }, segment.ids.map((id, place) => {
    const values = at(place);
    const title = [`token ${id}`, ...["advantage", "logprob", "difference"].filter((kind) => values[kind] !== undefined).map((kind) => `${kind} ${signed(values[kind])}`)].join(" · ");
    const shown = known ? visible(texts[id]) : `‹${id}› `;
    return el("span", { class: `token ${shade(colour, values[colour])}`, title }, place ? shown : shown.trimStart());
  }));
}

function missing(detail) {
  if (colour === "advantage" && detail.advantages === undefined) return "No advantage is recorded for this rollout: it was not trained on (a reading, an Invalid rollout, a question that was only written), or the run does not record samples.";
  if (colour === "difference" && !detail.differences) return "The learner's log-probabilities are not recorded for this rollout. A run records them with run.record_samples=tokens.";
  return "";
}

function body(detail, segment, start, texts) {
  if (colour === "none" || missing(detail)) return prose(segment.text.replace(/^(\s*\n)+/, "")); // as tokens, with blank lines
  if (colour === "mask") return prose(segment.text, segment.kind === "action" ? "token trained" : "masked");
  return segment.kind === "action" ? tokensOf(detail, segment, start, texts) : prose(segment.text);
}

function callLine(call) {
  const said = Object.entries(call.arguments).map(([name, given]) => `${name}: ${typeof given === "string" ? given : JSON.stringify(given)}`);
  return el("p", { class: "call" }, el("b", {}, "Call "), el("code", { class: "untrusted" }, visible(call.name)), " ", prose(said.join(", ")));
}

// `before` is how many passages were shown before: an answer cites them by their number.
function resultBlock({ before, ...result }) {
  const rows = result.passages.map((one, place) => [
    String(before + place + 1), prose(one.title ?? ""), prose(`${one.id} (${one.document_id} ${one.start}–${one.end})`, "code"), number(one.score, 2),
  ]);
  return [
    result.text !== undefined && prose(result.text),
    rows.length ? el("details", {}, el("summary", {}, count(rows.length, "passage", "passages")), tableOf("Passages that were found", ["", "title", "passage", "score"], rows))
      : el("p", { class: "meta" }, "No passage was found."),
  ];
}

const NAMES = { prompt: "Prompt", action: "Policy", observation: "Observation" };

// The turns of a rollout. `detail` is as the chunk holds it, `texts` the texts of tokens.
function turns(detail, texts) {
  const actions = [...detail.actions], results = [...detail.results];
  let before = 0;
  for (const result of [...(detail.opening ?? []), ...results]) {
    result.before = before;
    before += result.passages.length;
  }
  const opening = (detail.opening ?? []).flatMap((result) => [callLine(result.call), ...resultBlock(result)]).filter(Boolean);
  let found = [];
  let start = 0;
  const shown = detail.segments.map((segment) => {
    const part = el("div", { class: `segment ${segment.kind}` });
    const head = el("h5", {}, Object.hasOwn(NAMES, segment.kind) ? NAMES[segment.kind] : visible(segment.kind), el("span", { class: "meta" }, ` ${number(segment.length)} tokens`));
    const text = body(detail, segment, start, texts);
    if (segment.kind === "prompt") part.append(el("details", {}, el("summary", {}, head), text), ...opening.splice(0));
    else part.append(head, text);
    if (segment.kind === "observation") part.append(...found.splice(0).flatMap(resultBlock).filter(Boolean));
    if (segment.kind !== "action") return part;
    start += segment.ids.length;
    const action = actions.shift() ?? {};
    const calls = action.tool_calls ?? [];
    part.append(...calls.map(callLine));
    if (action.problem) part.append(el("p", { class: "note" }, "Not understood: ", prose(action.problem)));
    found = results.splice(0, calls.length);
    return part;
  });
  if (found.length) shown.push(el("div", { class: "segment observation" }, found.flatMap(resultBlock)));
  const why = missing(detail);
  return [why && el("p", { class: "note" }, why), ...shown].filter(Boolean);
}

function outcomeOf(one, detail) {
  const outcome = detail.outcome ?? {};
  const parts = Object.entries(outcome.parts ?? {});
  const own = detail.advantages;
  return facts([
    value(one, "invalid") ? ["Invalid", [visible(value(one, "invalid")), outcome.detail ? ": " : "", prose(outcome.detail ?? "")]] : ["Reward", number(value(one, "reward"))],
    ...parts.map(([name, at]) => [visible(name), number(at)]),
    ["Ended", value(one, "stop").replaceAll("_", " ")],
    detail.failure && ["Failure", prose(detail.failure)],
    value(one, "answer") !== null && ["Answer", prose(value(one, "answer"))],
    own !== undefined && ["Advantage", Array.isArray(own) ? `${signed(value(one, "advantage"))} (mean)` : signed(own)],
    ["Searches", number(value(one, "searches"))], ["Tokens", number(value(one, "tokens"))],
    ["Policy version", number(detail.version)],
  ].filter(Boolean));
}

// A rollout that unfolds; its detail is loaded when it does.
function rolloutBlock(one, title, open) {
  const inside = el("div", { class: "inside" });
  const block = el("details", { class: "rollout", open, ontoggle: () => block.open && block.fill() },
    el("summary", {}, rewardMark(one), " ", title), inside);
  block.fill = () => (block.filled ??= render());
  const render = async () => {
    try {
      const [detail, texts] = await Promise.all([detailOf(one), tokenTexts(runOf(one))]);
      inside.replaceChildren(outcomeOf(one, detail), ...turns(detail, texts));
    } catch (error) {
      inside.replaceChildren(el("p", { class: "note" }, error.message));
    }
  };
  block.recolour = () => { block.filled = block.open ? render() : undefined; };
  return block;
}

function colourSelect(root) {
  const key = el("p", { class: "legend" });
  const show = () => {
    key.replaceChildren(...[legend(colour)].flat(3));
    root().querySelectorAll("details.rollout").forEach((block) => block.recolour());
  };
  const chooser = el("select", { id: "colour", onchange: (event) => { colour = event.target.value; show(); } },
    Object.entries(COLOURS).map(([name, text]) => el("option", { value: name, selected: name === colour }, text)));
  key.replaceChildren(...[legend(colour)].flat(3));
  return el("div", { class: "colours" }, el("label", {}, "Colour tokens by", chooser), key);
}
