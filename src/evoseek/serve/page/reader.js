// The document of a citation, as text, open where the answer cites it.
"use strict";

const AROUND = 20; // passages on each side

function place(passage) {
  return { File: passage.file, Page: passage.page, Heading: passage.heading, Passage: passage.id };
}

// A text with these ranges of its characters marked. The server counts code points, and so does Array.from.
function marked(text, spans = []) {
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

// The address of the cited words in a file that a browser shows. A PDF has its page already.
function fragment(passage) {
  if (passage.link.includes("#")) return passage.link;
  const lines = passage.text.split("\n").map((line) => line.replace(/^[-*#>|\s]+/, "").split(/\s+/).filter(Boolean)).filter((line) => line.length);
  const part = (words) => encodeURIComponent(words.join(" ")).replaceAll("-", "%2D");
  const isShort = lines.length === 1 && lines[0].length <= 10;
  return `${passage.link}#:~:text=${isShort ? part(lines[0]) : `${part(lines[0].slice(0, 5))},${part(lines.at(-1).slice(-5))}`}`;
}

function original(passage) {
  const link = Object.assign(element("a", "", passage.file), { href: fragment(passage), target: "_blank", rel: "noopener" });
  link.addEventListener("click", async (event) => {
    if (!key) return;
    event.preventDefault(); // a link sends no key, so the file is fetched and saved
    const response = await fetch(passage.link, { headers: headers() });
    if (response.ok) save(await response.blob(), passage.file.split("/").pop());
  });
  return link;
}

function save(blob, name) {
  const link = Object.assign(element("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// The ranges to mark in a passage of the document, if it is the cited one or a part of it; else undefined.
function rangesIn(passage, cited) {
  const isThere = passage.id === cited.id || (passage.page === cited.page && passage.heading === cited.heading);
  const place = cited.text.indexOf(passage.text);
  if (!isThere || place < 0 || !passage.text) return undefined;
  const start = Array.from(cited.text.slice(0, place)).length, length = Array.from(passage.text).length;
  return (cited.spans ?? []).map(([from, to]) => [from - start, to - start]).filter(([from, to]) => from >= 0 && to <= length);
}

function piece(passage, before, cited) {
  const made = element("section"), heading = passage.heading ?? "";
  const ranges = rangesIn(passage, cited);
  if (passage.page && passage.page !== before?.page) made.append(element("p", "border", `Page ${passage.page}`));
  if (heading && heading !== before?.heading && !passage.text.slice(0, heading.length + 9).includes(heading)) made.append(element("h3", "", heading));
  const text = element("p");
  text.replaceChildren(...marked(passage.text, ranges));
  if (ranges) made.className = "here";
  made.append(text);
  return made;
}

async function around(id) {
  const address = `v1/passages/${id.split("/").map(encodeURIComponent).join("/")}?neighbours=${AROUND}`;
  const response = await fetch(address, { headers: headers() });
  return response.ok ? (await response.json()).passages : [];
}

// Show what stands around a cited passage, with more of the document on demand.
function read(cited, passages) {
  const text = $("passage-text"), seen = new Set();
  const fill = (found) => found.filter((one) => !seen.has(one.id)).map((one, number, all) => {
    seen.add(one.id);
    return piece(one, all[number - 1], cited);
  });
  const more = (name, id, insert) => {
    const button = element("button", "", name);
    button.type = "button";
    button.addEventListener("click", async () => {
      const found = await around(id), fresh = fill(found);
      insert(button, fresh);
      id = (name === "Earlier" ? found[0] : found.at(-1))?.id;
      if (fresh.length < AROUND) button.remove();
    });
    return button;
  };
  const place = passages.findIndex(({ id }) => id === cited.id);
  text.replaceChildren(
    ...(place < AROUND ? [] : [more("Earlier", passages[0].id, (button, fresh) => button.after(...fresh))]),
    ...fill(passages),
    ...(passages.length - place - 1 < AROUND ? [] : [more("Later", passages.at(-1).id, (button, fresh) => button.before(...fresh))]),
  );
}

async function show(passage, button) {
  $("passage-title").replaceChildren(...marked(passage.title, passage.title_spans));
  $("passage-text").replaceChildren(piece(passage, null, passage));
  $("passage-place").replaceChildren();
  for (const [name, value] of Object.entries(place(passage))) {
    if (value !== undefined && value !== null) {
      const shown = element("dd", "", String(value));
      if (name === "File" && passage.link) shown.replaceChildren(original(passage));
      $("passage-place").append(element("dt", "", name), shown);
    }
  }
  opener = button;
  $("panel").hidden = false;
  $("panel").focus();
  const passages = await around(passage.id).catch(() => []);
  if (opener !== button || !passages.some((one) => rangesIn(one, passage))) return; // the document was changed since
  read(passage, passages);
  const here = $("passage-text").querySelector("mark, .here");
  if (passage.page && passage.link) await drawn(passage, here.closest("section"), button).catch(() => {});
  here.scrollIntoView({ block: "center" });
}

// Put the picture of a PDF's page before its text, if the server can draw it.
async function drawn(passage, section, button) {
  const response = await fetch(`v1/pictures/${passage.id.split("/").map(encodeURIComponent).join("/")}`, { headers: headers() });
  if (!response.ok || opener !== button) return;
  const picture = Object.assign(element("img"), { alt: `Page ${passage.page}, with the cited text marked`, src: URL.createObjectURL(await response.blob()) });
  section.lastElementChild.before(picture);
  await picture.decode();
  URL.revokeObjectURL(picture.src);
}

function closePanel() {
  $("panel").hidden = true;
  if (opener?.isConnected) opener.focus();
  opener = null;
}

$("close").addEventListener("click", closePanel);

// Passages with the numbers by which the answer cites them; what was found is numbered after the `before` before it.
function citations(passages, before = 0) {
  const list = element("ul", "cited");
  passages.forEach((passage, place) => {
    const numbers = passage.numbers ?? [before + place + 1];
    const button = element("button", "", `${numbers.map((number) => `[${number}] `).join("")}${passage.label}`);
    button.type = "button";
    button.addEventListener("click", () => show(passage, button));
    const item = element("li");
    item.append(button);
    list.append(item);
  });
  return list;
}

// An answer whose citations show their passages.
function cited(answer, passages) {
  return answer.split(/(\[\d+\])/).map((part) => {
    const passage = passages.find(({ numbers }) => numbers.some((number) => part === `[${number}]`));
    if (!passage) return part;
    const button = element("button", "citation", part);
    button.type = "button";
    button.setAttribute("aria-label", `Passage ${part.slice(1, -1)}: ${passage.label}`);
    button.addEventListener("click", () => show(passage, button));
    return button;
  });
}
