// The page of a review. Text from documents or models is inserted by textContent, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const KEYS = { r: "right", w: "wrong", u: "unclear" };
const SIGNS = { right: "✓", wrong: "✗", unclear: "?" };
let state = { verdicts: [] };
let shown = 0; // the number of the question in sight; state.verdicts.length: the result
let busy = false;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A text with these ranges of its characters marked. The server counts code points, and so does Array.from.
function marked(text, spans) {
  const characters = Array.from(text);
  const cut = (start, end) => characters.slice(start, end).join("");
  let last = 0;
  const parts = spans.flatMap(([start, end]) => {
    const before = cut(last, start);
    last = end;
    return [before, element("mark", "", cut(start, end))];
  });
  return [...parts, cut(last)];
}

function status(text, isLost = false) {
  $("status").textContent = text;
  $("status").classList.toggle("lost", isLost);
}

async function call(path, body) {
  const options = body === undefined ? { cache: "no-store" } : { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const reply = await response.json();
  if (!response.ok) throw new Error(reply.error.message);
  return reply;
}

// What the user does, one thing at a time; a lost server is said, and the verdict can be given again
async function doing(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
  } catch (error) {
    status(error instanceof TypeError ? "The server does not answer. Start the command again and open the address that it prints; no verdict is lost." : error.message, true);
  } finally {
    busy = false;
  }
}

function judged() {
  return state.verdicts.filter(Boolean).length;
}

function mark() {
  const count = state.verdicts.length;
  status(`${judged()} of ${count} judged`);
  $("place").textContent = shown < count ? `${shown + 1} of ${count}` : "";
  $("marks").replaceChildren(...state.verdicts.map((verdict, number) => {
    const button = element("button", "", String(number + 1));
    button.type = "button";
    button.tabIndex = -1; // thirty stops on the way to the verdict are too many; Back leads there, too
    button.setAttribute("aria-label", `Question ${number + 1}${verdict ? `, ${verdict}` : ""}`);
    if (verdict) Object.assign(button.dataset, { verdict, sign: SIGNS[verdict] });
    if (number === shown) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => doing(() => show(number)));
    const item = element("li");
    item.append(button);
    return item;
  }));
  $("marks").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  for (const verdict of Object.values(KEYS)) {
    $(verdict).disabled = shown >= count;
    $(verdict).setAttribute("aria-pressed", String(state.verdicts[shown] === verdict));
  }
  $("back").disabled = shown === 0;
}

function passage({ title, place, text, spans, title_spans }) {
  const block = element("div", "passage"), head = element("h2"), body = element("p");
  head.append(...marked(title, title_spans));
  body.append(...marked(text, spans));
  block.append(head, element("small", "", place), body);
  return block;
}

async function show(number) {
  state = await call("state"); // another tab may have judged
  if (number >= state.verdicts.length) {
    result(number);
    return;
  }
  const item = await call(String(number));
  shown = number;
  $("item").hidden = false;
  $("result").hidden = true;
  $("question").textContent = item.question;
  $("answer").textContent = item.answers.join(" | ");
  $("note").textContent = item.note;
  $("note").hidden = !item.note;
  $("none").hidden = item.passages.length > 0;
  $("passages").replaceChildren(...item.passages.map(passage));
  mark();
  $("log").scrollTop = 0;
  $("log").focus();
}

function result(number) {
  shown = number;
  $("item").hidden = true;
  $("result").hidden = false;
  $("share").textContent = state.share;
  $("done").textContent = judged() < number ? "Not all are judged. The same command resumes." : "Done. Thank you. To judge more, start the command again with a higher --count.";
  $("tests").textContent = `The questions judged right are the test set, which evoseek eval scores and training leaves out: ${state.tests}`;
  mark();
  $("result").focus();
}

function next() {
  const count = state.verdicts.length, open = state.verdicts.findIndex((verdict) => !verdict);
  return shown + 1 < count ? shown + 1 : open >= 0 ? open : count;
}

function judge(verdict) {
  if (shown >= state.verdicts.length) return;
  doing(async () => {
    state = await call(String(shown), { verdict });
    await show(next());
  });
}

function back() {
  if (shown > 0) doing(() => show(shown - 1));
}

function finish() {
  doing(async () => {
    state = await call("end", {});
    result(state.verdicts.length);
    $("then").hidden = true;
    status("Finished: the command has ended. This page can be closed.");
    for (const button of document.querySelectorAll("button")) button.disabled = true;
    document.removeEventListener("keydown", pressed);
  });
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return; // one key, one verdict
  const key = event.key.toLowerCase();
  if (KEYS[key]) judge(KEYS[key]);
  else if (key === "b" || event.key === "ArrowLeft") back();
  else if (key === "q") finish();
  else if (event.key === "ArrowRight" && state.verdicts[shown]) doing(() => show(next()));
}

document.addEventListener("keydown", pressed);
for (const verdict of Object.values(KEYS)) $(verdict).addEventListener("click", () => judge(verdict));
$("back").addEventListener("click", back);
$("finish").addEventListener("click", finish);

doing(async () => {
  state = await call("state");
  const open = state.verdicts.findIndex((verdict) => !verdict);
  await show(open < 0 ? state.verdicts.length : open);
});
