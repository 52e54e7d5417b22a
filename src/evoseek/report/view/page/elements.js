// Elements are made by calls, and text only ever becomes a text node: nothing that a rollout holds is read as markup.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Characters that are not seen but change how the text around them looks: controls, and marks of writing direction.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST = 20000;

function visible(text) {
  return String(text).replace(HIDDEN, (char) => `⟨U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

function prose(text, className = "") {
  const whole = visible(text ?? "");
  const node = el("span", { class: `untrusted ${className}` }, whole.slice(0, LONGEST));
  if (whole.length <= LONGEST) return node;
  const more = el("button", { type: "button", class: "small" }, `Show all ${whole.length.toLocaleString("en")} characters`);
  more.addEventListener("click", () => { node.textContent = whole; more.remove(); });
  return el("span", {}, node, " … ", more);
}

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 0.001 && size < 10000 ? value.toFixed(size >= 100 ? 1 : digits) : value.toExponential(2);
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

function count(how, one, many) {
  return `${number(how)} ${how === 1 ? one : many}`;
}

function say(text) {
  document.getElementById("status").textContent = text;
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function tableOf(caption, head, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map(([first, ...rest]) =>
        el("tr", {}, el("th", { scope: "row" }, first), rest.map((cell) => el("td", {}, cell)))))));
}
