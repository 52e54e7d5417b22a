// Conversations, kept in this browser alone: list, open, rename, export, delete.
"use strict";

const MOST_KEPT = 100;
let current = null; // the id of the open conversation, once it has an answer

// Where they are kept. Another key's conversations are not shown; its digest here does not reveal a key.
function shelf() {
  const digest = Array.from(key).reduce((sum, sign) => Math.imul(sum ^ sign.charCodeAt(0), 16777619) >>> 0, 2166136261);
  return key ? `conversations-${digest}` : "conversations";
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(shelf()) ?? "[]");
  } catch {
    return []; // damaged, or refused by the browser
  }
}

// Keep conversations, newest first; the oldest ones leave if there is no room.
function keepAll(conversations) {
  for (let most = Math.min(conversations.length, MOST_KEPT); most >= 0; most--) {
    try {
      localStorage.setItem(shelf(), JSON.stringify(conversations.slice(0, most)));
      break;
    } catch { /* full */ }
  }
  listKept();
}

function keep(exchanged) {
  const all = kept(), mine = all.find(({ id }) => id === current) ?? { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: exchanged.question.slice(0, 80), exchanges: [] };
  mine.exchanges.push(exchanged);
  current = mine.id;
  keepAll([mine, ...all.filter((one) => one.id !== mine.id)]);
}

function reopen(one) {
  begin();
  current = one.id;
  for (const { question, content, id, result } of one.exchanges) {
    const view = exchange(question);
    end(Object.assign(view, { id, result }), question, content);
  }
  listKept();
  openSide(false);
  $("question").focus();
}

function exported({ title, exchanges }) {
  const parts = exchanges.map(({ question, content, result }) => {
    const sources = result.support.map((passage) => {
      const where = [passage.file ?? passage.id, passage.page && `page ${passage.page}`, passage.heading].filter(Boolean);
      return `- ${passage.numbers.map((number) => `[${number}] `).join("")}${where.join(", ")}\n\n${passage.text.replace(/^/gm, "  > ")}`;
    });
    const answer = result.supported ? result.answer : content; // without the list of sources, which follows
    return [`## ${question}`, answer, ...(sources.length ? ["Sources:", ...sources] : [])].join("\n\n");
  });
  return [`# ${title}`, ...parts].join("\n\n") + "\n";
}

function actions(one) {
  const row = element("div", "actions");
  const add = (name, act) => {
    const button = element("button", "", name);
    button.type = "button";
    button.setAttribute("aria-label", `${name} ${one.title}`);
    button.addEventListener("click", () => act(button));
    row.append(button);
  };
  add("Rename", () => rename(one, row));
  add("Export", () => save(new Blob([exported(one)], { type: "text/markdown" }), `${one.title.replace(/[^\p{L}\p{N} ]/gu, "").slice(0, 60) || "conversation"}.md`));
  add("Delete", (button) => {
    if (button.textContent === "Delete") return void (button.textContent = "Really delete");
    keepAll(kept().filter(({ id }) => id !== one.id));
    $("fresh").click();
  });
  return row;
}

function rename(one, row) {
  const field = Object.assign(element("input"), { value: one.title, maxLength: 80 });
  field.setAttribute("aria-label", "Title");
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    const title = field.value.trim();
    if (event.key === "Enter" && title) keepAll(kept().map((other) => (other.id === one.id ? { ...other, title } : other)));
    else listKept();
    $("kept-list").querySelector("[aria-current]")?.focus();
  });
  row.replaceChildren(field);
  field.select();
}

function listKept() {
  const all = kept();
  $("kept-none").hidden = all.length > 0;
  $("kept-list").replaceChildren(...all.map((one) => {
    const item = element("li"), button = element("button", "", one.title);
    button.type = "button";
    button.addEventListener("click", () => reopen(one));
    item.append(button);
    if (one.id === current) {
      button.setAttribute("aria-current", "true");
      item.append(actions(one));
    }
    return item;
  }));
}
