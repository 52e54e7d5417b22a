// Two runs side by side: the questions that both were asked, and the attempts at one of them beside one another.

const shared = lazily(() => [...askedIn()].filter(([, [first, second]]) => first.length && second?.length)
  .map(([text, [first, second]]) => ({ text, sides: [first, second], means: [mean(first), mean(second)] })));

const COMPARED = {
  "largest difference first": (a, b) => Math.abs(b.means[1] - b.means[0]) - Math.abs(a.means[1] - a.means[0]),
  "B better first": (a, b) => (b.means[1] - b.means[0]) - (a.means[1] - a.means[0]),
  "A better first": (a, b) => (a.means[1] - a.means[0]) - (b.means[1] - b.means[0]),
};

function pairRow(pair) {
  const mark = (at, place) => el("span", { class: `mark ${at > 0.5 ? "good" : at > 0 ? "some" : "none"}` }, `${"AB"[place]} ${number(at, 2)}`);
  return [el("span", { class: "pair" }, pair.means.map(mark)), el("span", { class: "asked untrusted" }, visible(pair.text.slice(0, 200))),
    el("span", { class: "meta" }, pair.sides.map((side, place) => `${"AB"[place]}: ${count(side.length, "attempt", "attempts")}`).join(" · "))];
}

const MOST = 24; // attempts of a side that are shown, the latest

function sideBySide(pair) {
  const golden = questionOf(pair.sides[0][0]).golden;
  return [
    el("h2", { tabindex: -1 }, prose(pair.text)),
    facts([["Golden answers", prose(golden.join(" | "))]]),
    colourSelect(() => document.getElementById("detail")),
    el("div", { class: "sides" }, pair.sides.map((side, place) => el("section", { "aria-label": runName(place) },
      el("h3", {}, runName(place)),
      el("p", { class: "meta" }, `${count(side.length, "attempt", "attempts")}, mean reward ${number(pair.means[place])}`, side.length > MOST && `; the last ${MOST} are shown`),
      side.slice(-MOST).reverse().map((one, at) => rolloutBlock(one, [`step ${value(one, "step")} · `, attemptTitle(one, side.length - 1 - at)], at === 0))))),
  ];
}

function compareView() {
  const pairs = shared();
  if (!pairs.length) return [el("h2", {}, "No shared question"), el("p", {}, "The runs have no solver's question in common, so there is nothing to lay side by side. Their curves are in the overview.")];
  const detail = el("section", { id: "detail", "aria-label": "Attempts of both runs" }, el("p", { class: "meta" }, "Choose a question."));
  const list = new VirtualList("Questions that both runs were asked", pairRow, (pair) => detail.replaceChildren(...sideBySide(pair)));
  const sort = (name) => list.show([...pairs].sort(COMPARED[name]));
  const order = el("label", {}, "Order", el("select", { onchange: (event) => sort(event.target.value) }, Object.keys(COMPARED).map((name) => el("option", { value: name }, name))));
  queueMicrotask(() => { sort(Object.keys(COMPARED)[0]); list.go(0); });
  activeList = list;
  return [el("div", { class: "columns" }, el("div", { class: "side" }, el("div", { class: "filters" }, el("p", {}, `${number(pairs.length)} shared questions`), order), list.box), detail)];
}
