// The chat page. Text from documents, models or users is inserted by textContent, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const LOST_PAUSE_MS = 1000;
let conversation = [];
let feedback; // where conversations with a verdict are kept; undefined: they are not
let running = null; // the AbortController of the answer under way
let opener = null; // the button that opened the panel
let key = sessionStorage.getItem("key") || "";

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function headers() {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

function status(text, isLost = false) {
  $("status").textContent = text;
  $("status").classList.toggle("lost", isLost);
}

// Connection

async function connect() {
  for (let tries = 0; ; tries++) {
    try {
      const health = await (await fetch("health", { cache: "no-store" })).json();
      $("model").textContent = health.model;
      status(tries ? "Connected again." : "Connected.");
      const models = await fetch("v1/models", { headers: headers() });
      $("unlock").hidden = models.status !== 401;
      if (models.ok) describe((await models.json()).data[0].evoseek);
      return;
    } catch {
      status("The server does not answer. Trying again ...", true);
      await new Promise((done) => setTimeout(done, LOST_PAUSE_MS));
    }
  }
}

function describe(documents) {
  feedback = documents.feedback;
  offerUpload(documents.upload);
  offerFolders(documents.folders ?? []);
  $("kept").hidden = !feedback;
  $("kept").textContent = feedback ? `An answer that you judge is kept with its question in ${feedback} where the server runs; \`evoseek feedback --delete\` removes it. The server keeps nothing else.` : "";
  const counted = [[documents.files, "file"], [documents.passages, "passage"]].filter(([number]) => number !== undefined);
  $("documents").textContent = counted.map(([number, name]) => `${number.toLocaleString("en")} ${name}${number === 1 ? "" : "s"}`).join(", ");
  $("examples").replaceChildren(...(documents.examples ?? []).map((question) => {
    const button = element("button", "", question);
    button.type = "button";
    button.addEventListener("click", () => { if (!running) ask(question); });
    const item = element("li");
    item.append(button);
    return item;
  }));
}

function offerFolders(folders) {
  const chosen = $("folder").value;
  $("folder").hidden = !folders.length;
  $("folder").replaceChildren(...["", ...folders].map((name) => Object.assign(element("option", "", name || "All documents"), { value: name })));
  $("folder").value = folders.includes(chosen) ? chosen : "";
}

$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.replace(/[^\x21-\x7e]/g, ""); // what no key holds, and no header may
  sessionStorage.setItem("key", key);
  $("key").value = "";
  begin();
  listKept();
  connect();
});

// The user's verdict on an answer

function judging(view) {
  const group = element("div", "judge"), said = element("p", "note"), form = element("form", "judge");
  const right = element("button", "", "Right"), wrong = element("button", "", "Wrong"), there = element("button", "", "It is there: ...");
  const fields = [["right_answer", "The right answer", 500], ["note", "Where to look", 2000]].map(([name, text, most]) => {
    const label = element("label", "", text), field = element("input");
    Object.assign(field, { name, maxLength: most, autocomplete: "off" });
    label.append(field);
    form.append(label);
    return field;
  });
  const send = element("button", "", "Send");
  form.append(send);
  said.setAttribute("role", "status");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Is the answer right?");
  group.append(element("span", "", "Is the answer right?"));
  for (const button of [right, wrong, there]) button.type = "button";
  const judge = async (verdict, button, more = {}) => {
    try {
      const body = JSON.stringify({ id: view.id, verdict, ...more });
      const response = await fetch("v1/feedback", { method: "POST", headers: headers(), body });
      if (!response.ok) throw new Refused((await response.json()).error.message);
      for (const one of [right, wrong, there]) one.setAttribute("aria-pressed", String(one === button));
      said.textContent = "Kept, thank you. Another verdict replaces it.";
      open(false);
      button.focus();
    } catch (error) {
      said.textContent = error instanceof Refused ? error.message : "The server does not answer. Try again.";
    }
    said.scrollIntoView({ block: "nearest" }); // the last answer ends at the composer
  };
  right.addEventListener("click", () => judge("right", right));
  wrong.addEventListener("click", () => judge("wrong", wrong));
  const open = (isOpen) => {
    form.hidden = !isOpen;
    there.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) fields[0].focus();
  };
  open(false);
  there.addEventListener("click", () => open(form.hidden));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const more = Object.fromEntries(fields.map((field) => [field.name, field.value.trim()]));
    if (more.right_answer || more.note) judge("wrong", there, more);
    else fields[0].focus();
  });
  group.append(right, wrong, there);
  view.article.append(group, form, said);
}

// One exchange

function exchange(question) {
  const article = element("article");
  const searches = element("ol", "searches");
  const answer = element("p", "answer", "Reading the question ...");
  answer.setAttribute("aria-busy", "true");
  article.append(element("h2", "question", question), searches, answer);
  $("hint").hidden = true;
  $("log").append(article);
  article.scrollIntoView({ block: "end" });
  return { article, searches, answer, waiting: [], found: 0 };
}

function said(call) {
  return Object.values(call.arguments).flat().join("; ");
}

function follow(view, event) {
  if (event.event === "call") {
    const item = element("li", "", `${event.tool}: ${said(event)} ...`);
    view.waiting.push([said(event), item]);
    view.searches.append(item);
    view.answer.textContent = `Searching for "${said(event)}" ...`;
  } else if (event.event === "found") {
    const index = view.waiting.findIndex(([asked]) => asked === said(event));
    const item = index < 0 ? view.searches.appendChild(element("li")) : view.waiting.splice(index, 1)[0][1];
    const text = `${event.tool}: ${said(event)} (${event.passages.length} found)`;
    item.replaceChildren(text);
    if (event.passages.length) {
      const found = element("details");
      found.append(element("summary", "", text), citations(event.passages, view.found));
      item.replaceChildren(found);
      view.found += event.passages.length;
    }
    view.answer.textContent = `Reading ${event.passages.length} passage${event.passages.length === 1 ? "" : "s"} ...`;
  } else if (event.event === "answer") {
    view.result = event;
  }
  view.article.scrollIntoView({ block: "end" });
}

function end(view, question, content) {
  const { supported, answer, support } = view.result;
  view.answer.replaceChildren(...(supported && answer !== null ? cited(answer, support) : [content]));
  view.answer.removeAttribute("aria-busy");
  view.answer.classList.toggle("missing", !supported || answer === null);
  if (view.result.certainty !== null) {
    const text = `Sure ${view.result.certainty.toFixed(2)}: the probability that the model gives these words.`;
    view.answer.after(element("p", "sure", text));
  }
  if (support.length && answer !== null) {
    const heads = {
      words: `Passages about the question that contain these words (no more was checked): ${view.result.words.join("; ")}`,
      sentences: "Passages that have these sentences, or most of their words (no more was checked):",
      topic: "Passages about the question (which need not hold the answer):",
      judge: "Passages that support the answer, as the judge says:",
    };
    view.article.append(element("p", "", heads[view.result.rule]));
    view.article.append(citations(view.result.support));
  }
  const out = view.result.sentences.filter((one) => !one.supported).length;
  if (supported && answer !== null && out) {
    const text = `${out} of ${view.result.sentences.length} sentences are left out, which no passage supports.`;
    view.answer.after(element("p", "note", text));
  }
  const dropped = view.result.dropped_messages;
  if (dropped) {
    view.article.append(element("p", "note", `The model was not given ${dropped} of the earlier messages.`));
  }
  if (feedback) judging(view);
  conversation.push({ role: "user", content: question }, { role: "assistant", content });
  view.article.scrollIntoView({ block: "end" });
}

function fail(view, question, text) {
  view.answer.textContent = text;
  view.answer.classList.add("missing");
  view.answer.removeAttribute("aria-busy");
  const again = element("button", "", "Ask again");
  again.type = "button";
  again.addEventListener("click", () => {
    if (running) return;
    view.article.remove();
    ask(question);
  });
  view.article.append(again);
  view.article.scrollIntoView({ block: "end" });
}

async function* chunks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ")) continue; // a comment
      if (block === "data: [DONE]") return;
      yield JSON.parse(block.slice("data: ".length));
    }
  }
}

class Refused extends Error {}

async function answered(view, question, signal) {
  const messages = [...conversation, { role: "user", content: question }];
  const body = JSON.stringify({ model: "evoseek", messages, stream: true, folder: $("folder").value });
  const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body, signal });
  if (!response.ok) {
    $("unlock").hidden = response.status !== 401;
    throw new Refused((await response.json()).error.message);
  }
  let content = "";
  for await (const chunk of chunks(response)) {
    if (chunk.error) throw new Refused(chunk.error.message);
    view.id = chunk.id;
    content += chunk.choices[0]?.delta.content || "";
    if (chunk.evoseek) follow(view, chunk.evoseek);
  }
  if (!view.result) throw new TypeError("the stream ended early");
  end(view, question, content);
  keep({ question, content, id: view.id, result: view.result });
}

async function ask(question) {
  const view = exchange(question);
  const mine = (running = new AbortController());
  $("stop").hidden = false;
  $("send").disabled = true;
  try {
    await answered(view, question, mine.signal);
  } catch (error) {
    if (!view.article.isConnected) return; // another conversation was opened meanwhile
    if (error.name === "AbortError") {
      fail(view, question, "Stopped.");
    } else if (error instanceof Refused) {
      fail(view, question, error.message);
      connect(); // a server that is stopped says so, and is lost then
    } else {
      fail(view, question, "The connection was lost before the answer was there.");
      connect();
    }
  } finally {
    if (running === mine) {
      running = null;
      $("stop").hidden = true;
      $("send").disabled = false;
      $("question").focus();
    }
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = $("question").value.trim();
  if (!question || running) return;
  $("question").value = "";
  ask(question);
});

$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});

$("stop").addEventListener("click", () => running?.abort());

// An empty conversation
function begin() {
  running?.abort();
  conversation = [];
  current = null;
  document.querySelectorAll("#log > article").forEach((article) => article.remove());
  $("hint").hidden = false;
  closePanel();
}

$("fresh").addEventListener("click", () => {
  begin();
  listKept();
  openSide(false);
  $("question").focus();
});

function openSide(isOpen) {
  document.body.classList.toggle("side", isOpen);
  $("open-side").setAttribute("aria-expanded", String(isOpen));
}

$("open-side").addEventListener("click", () => openSide(!document.body.classList.contains("side")));

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (document.body.classList.contains("side")) openSide(false);
  else if (!$("panel").hidden) closePanel();
  else running?.abort();
});

document.addEventListener("DOMContentLoaded", () => { // once the other scripts are there
  listKept();
  connect();
  $("question").focus();
});
