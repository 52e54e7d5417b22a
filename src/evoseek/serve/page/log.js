// The page of what was asked. Texts are inserted by textContent, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const OUTCOMES = { answered: "answered", unsupported: "refused: no passage supports it", no_answer: "no answer", failed: "failed", cancelled: "cancelled" };
let key = sessionStorage.getItem("key") || "";
let questions = [];

async function load() {
  const reply = await fetch("v1/log", { headers: key ? { Authorization: `Bearer ${key}` } : {}, cache: "no-store" });
  $("unlock").hidden = reply.status !== 401;
  const body = await reply.json();
  if (!reply.ok) { $("status").textContent = body.error.message; return; }
  questions = body.questions;
  const wrong = body.verdicts.wrong ? { "judged wrong": body.verdicts.wrong } : {};
  const counts = { ...body.outcomes, ...wrong };
  $("status").textContent = `${body.asked} questions: ${Object.entries(counts).map(([name, count]) => `${count} ${OUTCOMES[name] ?? name}`).join(", ") || "none"}`;
  $("filter").replaceChildren(new Option("all", ""), ...Object.keys(counts).map((name) => new Option(OUTCOMES[name] ?? name, name)));
  show();
}

function show() {
  const wanted = $("filter").value;
  const shown = questions.filter((one) => !wanted || one.outcome === wanted || (wanted === "judged wrong" && one.verdict === "wrong"));
  $("rows").replaceChildren(...shown.map((one) => {
    const row = document.createElement("tr");
    for (const text of [one.time, one.key, OUTCOMES[one.outcome] ?? one.outcome, one.verdict ?? "", one.seconds.toFixed(1)]) row.insertCell().textContent = text;
    const cell = row.insertCell();
    for (const text of one.question === null ? ["(texts are not kept)"] : [one.question, one.answer ?? "-"]) {
      const line = document.createElement("p");
      line.textContent = text;
      cell.append(line);
    }
    return row;
  }));
}

$("filter").addEventListener("change", show);
$("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("key", key);
  load();
});
load();
