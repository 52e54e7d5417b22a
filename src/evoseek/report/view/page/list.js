// The list of rollouts: filters, and a list box in which only visible rows exist.

const ROW = 58; // pixels, as .row in the style

class VirtualList {
  constructor(label, render, choose) {
    this.items = [];
    this.chosen = -1;
    this.render = render;
    this.choose = choose;
    this.rows = new Map();
    this.filler = el("div", { class: "filler", role: "presentation" });
    this.box = el("div", { class: "rows", role: "listbox", tabindex: 0, "aria-label": label, onscroll: () => this.#later(), onkeydown: (event) => this.#key(event) }, this.filler);
    new ResizeObserver(() => this.#later()).observe(this.box);
  }

  show(items) {
    this.items = items;
    this.chosen = -1;
    this.filler.style.height = `${items.length * ROW}px`;
    this.box.removeAttribute("aria-activedescendant");
    this.#clear();
    this.box.scrollTop = 0;
    this.draw();
  }

  // Choose the item at a place; it is scrolled into sight.
  go(place, tell = true) {
    if (!this.items.length) return;
    this.chosen = Math.min(this.items.length - 1, Math.max(0, place));
    const top = this.chosen * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    this.draw();
    this.box.setAttribute("aria-activedescendant", `row-${this.chosen}`);
    if (tell) this.choose(this.items[this.chosen]);
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 6);
    const last = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + 6);
    for (const [place, row] of this.rows) {
      if (place >= first && place < last) continue;
      row.remove();
      this.rows.delete(place);
    }
    for (let place = first; place < last; place++) {
      if (!this.rows.has(place)) this.#add(place);
      const isChosen = place === this.chosen;
      this.rows.get(place).setAttribute("aria-selected", isChosen);
    }
  }

  #add(place) {
    const row = el("div", {
      class: "row", role: "option", id: `row-${place}`, "aria-posinset": place + 1, "aria-setsize": this.items.length,
      onclick: () => this.go(place),
    }, this.render(this.items[place]));
    row.style.transform = `translateY(${place * ROW}px)`;
    this.rows.set(place, row);
    this.filler.append(row);
  }

  #clear() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  #later() {
    this.due ??= requestAnimationFrame(() => { this.due = undefined; this.draw(); });
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      this.go(by === -Infinity ? 0 : by === Infinity ? this.items.length - 1 : this.chosen + by);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.chosen < 0) this.go(0);
      focusDetail();
    }
  }
}

const STOPS = lazily(() => distinct("stop"));
function distinct(column) {
  const found = new Set();
  for (let one = 0; one < total; one++) if (value(one, column) !== null) found.add(value(one, column));
  return [...found].sort((a, b) => (typeof a === "number" ? a - b : a < b ? -1 : 1));
}

const ORDERS = {
  "as recorded": null,
  "latest step first": (a, b) => value(b, "step") - value(a, "step") || a - b,
  "highest reward first": (a, b) => (value(b, "reward") ?? -Infinity) - (value(a, "reward") ?? -Infinity) || a - b,
  "lowest reward first": (a, b) => (value(a, "reward") ?? Infinity) - (value(b, "reward") ?? Infinity) || a - b,
  "most searches first": (a, b) => value(b, "searches") - value(a, "searches") || a - b,
  "longest first": (a, b) => value(b, "tokens") - value(a, "tokens") || a - b,
};

const filters = { text: "", run: "", role: "", stop: "", hops: "", invalid: "", least: "", most: "", order: "as recorded", inside: null };

function matches(words) {
  const searchable = new Map();
  const heard = (one) => {
    const key = `${runOf(one)}/${value(one, "question")}`;
    if (!searchable.has(key)) {
      const { id, text, golden } = questionOf(one);
      searchable.set(key, [id, text, ...golden].join("\n").toLowerCase());
    }
    return searchable.get(key);
  };
  return (one) => words.every((word) =>
    heard(one).includes(word) || (value(one, "stated") ?? "").toLowerCase().includes(word) || (value(one, "answer") ?? "").toLowerCase().includes(word) || value(one, "id").toLowerCase().includes(word));
}

function filtered() {
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  const says = filters.inside ? (one) => filters.inside.has(one) : matches(words);
  const [least, most] = [filters.least, filters.most].map((bound) => (bound === "" ? null : Number(bound)));
  const found = [];
  for (let one = 0; one < total; one++) {
    const reward = value(one, "reward");
    if (filters.run !== "" && runOf(one) !== Number(filters.run)) continue;
    if (filters.role && value(one, "role") !== filters.role) continue;
    if (filters.stop && value(one, "stop") !== filters.stop) continue;
    if (filters.hops !== "" && value(one, "hops") !== Number(filters.hops)) continue;
    if (filters.invalid && (filters.invalid === "only") !== Boolean(value(one, "invalid"))) continue;
    if (least !== null && !(reward !== null && reward >= least)) continue;
    if (most !== null && !(reward !== null && reward <= most)) continue;
    if ((words.length || filters.inside) && !says(one)) continue;
    found.push(one);
  }
  const order = ORDERS[filters.order];
  return order ? found.sort(order) : found;
}

// Search in all that was written and read, chunk by chunk; resolves to the set of rollouts that hold the text.
async function searchInside(text) {
  const wanted = text.toLowerCase(), found = new Set();
  for (let one = 0; one < total; one++) {
    const detail = await detailOf(one);
    if (detail.segments?.some((segment) => segment.text.toLowerCase().includes(wanted))) found.add(one);
    if (one % (index.chunk * 8) === 0) say(`Searched ${number(one)} of ${number(total)} trajectories`);
    if (filters.text !== text) return null;
  }
  return found;
}

function select(label, key, options, changed) {
  return el("label", {}, label, el("select", { id: `filter-${key}`, onchange: (event) => { filters[key] = event.target.value; changed(); } },
    options.map(([name, text]) => el("option", { value: name, selected: String(filters[key]) === String(name) }, text))));
}

function bound(label, key, changed) {
  return el("label", {}, label, el("input", {
    id: `filter-${key}`, type: "number", step: "any", value: filters[key], oninput: (event) => { filters[key] = event.target.value; changed(); },
  }));
}

function filterForm(changed) {
  const any = (name) => [["", `any ${name}`]];
  const plain = (list) => list.map((one) => [one, String(one).replaceAll("_", " ")]);
  const search = el("input", {
    type: "search", id: "search", value: filters.text, placeholder: "Question, answer or id",
    oninput: (event) => { filters.text = event.target.value; filters.inside = null; changed(); },
  });
  const inside = el("button", {
    type: "button", class: "small",
    onclick: async () => {
      if (!filters.text) return say("Type a text to search for first");
      const found = await searchInside(filters.text).catch((error) => say(error.message));
      if (found) { filters.inside = found; changed(); }
    },
  }, "In full texts");
  const hops = distinct("hops");
  return el("form", { class: "filters", role: "search", "aria-label": "Filter trajectories", onsubmit: (event) => event.preventDefault() },
    el("div", { class: "search" }, el("label", {}, "Search", search), inside),
    el("details", { open: innerWidth > 700 }, el("summary", {}, "Filters"),
      el("div", { class: "grid" },
        runs.length > 1 && select("Run", "run", [["", "both"], ...runs.map((run, place) => [place, runName(place)])], changed),
        select("Role", "role", [...any("role"), ...plain(distinct("role"))], changed),
        select("Ended", "stop", [...any("reason"), ...plain(STOPS())], changed),
        hops.length > 0 && select("Hops", "hops", [...any("number"), ...plain(hops)], changed),
        select("Invalid", "invalid", [["", "any"], ["only", "only Invalid"], ["none", "none"]], changed),
        bound("Reward from", "least", changed), bound("to", "most", changed),
        select("Order", "order", Object.keys(ORDERS).map((name) => [name, name]), changed))));
}

function rewardMark(one) {
  const reward = value(one, "reward");
  if (value(one, "invalid")) return el("span", { class: "mark invalid" }, "Invalid");
  const degree = reward > 0.5 ? "good" : reward > 0 ? "some" : "none";
  return el("span", { class: `mark ${degree}`, title: "reward" }, number(reward, 2));
}

function rowOf(one) {
  const parts = [
    runs.length > 1 && seriesName(runOf(one)), !runs[runOf(one)].scores && `step ${value(one, "step")}`, value(one, "role"), value(one, "stop").replaceAll("_", " "),
    count(value(one, "searches"), "search", "searches"),
    value(one, "rejected") && `rejected: ${value(one, "rejected").replaceAll("_", " ")}`,
  ].filter(Boolean);
  return [rewardMark(one),
    el("span", { class: "asked untrusted" }, visible(value(one, "stated") ?? questionOf(one).text.slice(0, 200))),
    el("span", { class: "answered untrusted" }, value(one, "answer") === null ? "no answer" : `→ ${visible(value(one, "answer"))}`),
    el("span", { class: "meta" }, parts.join(" · "))];
}
