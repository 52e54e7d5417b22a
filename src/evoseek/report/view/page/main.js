// The views, and the keys that work in all of them.

let activeList = null;

function runFacts(run, place) {
  const steps = run.metrics.steps;
  return el("section", { "aria-label": runName(place) },
    el("h3", {}, el("span", { class: `key policy run${place}` }, prose(runName(place)))),
    run.headline && el("p", { class: "headline" }, run.headline),
    facts([
      ["System", visible(run.system)], run.model && ["Model", prose(run.model, "code")], ["Directory", prose(run.path, "code")],
      !run.scores && ["Steps", steps.length ? `${steps[0]} to ${steps.at(-1)}` : "none yet"], ["Trajectories", number(run.count)],
      ["State", run.running ? "still running; shown as it was when the page was made" : "not running"],
    ].filter(Boolean)),
    run.scores?.length > 0 && tableOf("Scores with their 95 % intervals", ["", "score"], run.scores),
    run.notes.map((note) => el("p", { class: "note" }, prose(note))));
}

function warningsView() {
  const all = new Map(); // by run and text, whose numbers may differ
  runs.forEach((run, place) => run.warnings.forEach((one) => {
    const key = `${place} ${one.text.replace(/[\d.]+/g, "#")}`;
    all.set(key, [...(all.get(key) ?? []), { ...one, place }]);
  }));
  if (!all.size) return el("p", {}, "No alarm and no warning.");
  return el("ul", { class: "warnings" }, [...all.values()].map((same) => {
    const last = same.at(-1);
    const steps = same.length > 1 ? `${same.length} times, steps ${same[0].step} to ${last.step}: ` : `step ${last.step}: `;
    return el("li", {}, el("b", {}, `${seriesName(last.place)} ${steps}`), prose(last.text));
  }));
}

function charts() {
  const drawn = Object.entries(index.charts).map(([name, title]) => chart(title, name)).filter(Boolean);
  const rest = allMetrics().filter((name) => !(name in index.charts));
  const own = el("div", { class: "charts" });
  const more = rest.length > 0 && el("div", {},
    el("label", {}, "Another metric", el("select", { onchange: (event) => own.replaceChildren(...[event.target.value && chart(event.target.value, event.target.value)].filter(Boolean)) },
      el("option", { value: "" }, "choose …"), rest.map((name) => el("option", { value: name }, name)))), own);
  if (!drawn.length) return [el("p", {}, "No metrics are recorded yet.")];
  const keys = runs.flatMap((run, place) => ROLES.filter((role) => Object.keys(index.charts).some((name) => run.metrics.values[role ? `${role}/${name}` : name]?.some((one) => one !== null)))
    .map((role) => el("span", { class: `key ${role || "policy"} run${place}` }, [seriesName(place), role || "policy, or both roles"].filter(Boolean).join(" "))));
  const marked = runs.some((run) => run.warnings.length) && el("span", { class: "key alarm" }, "alarm or warning");
  return [el("p", { class: "keys" }, keys, marked), el("div", { class: "charts" }, drawn), more];
}

function overview() {
  const differences = index.differences.map(([name, first, second]) => [el("code", {}, visible(name)), prose(first, "code"), prose(second, "code")]);
  return [
    el("div", { class: "runs" }, runs.map(runFacts)),
    ...(runs.every((run) => run.scores) ? [] : [ // an evaluation has no steps
      el("section", { "aria-label": "Alarms and warnings" }, el("h2", {}, "Alarms and warnings"), warningsView()),
      el("section", { "aria-label": "Curves" }, el("h2", {}, "Curves"), charts()),
    ]),
    differences.length > 0 && el("details", { class: "block" }, el("summary", {}, `${differences.length} settings differ`), tableOf("Settings that differ", ["setting", "A", "B"], differences)),
    el("p", { class: "meta" }, `Made ${index.made}. Keys: j and k go through a list, Enter reads what is chosen, / searches, Escape goes back to the list.`),
  ].filter(Boolean);
}

function trajectories(wanted) {
  if (!total) return [el("h2", {}, "No trajectories"), el("p", {}, "No trajectory is recorded yet. A run of demonstrations (sft) records none.")];
  const detail = el("section", { id: "detail", "aria-label": "Episode" }, el("p", { class: "meta" }, "Choose a trajectory."));
  let latest = null;
  const show = async (one) => {
    latest = one;
    history.replaceState(null, "", `#trajectories/${addressOf(one)}`);
    try {
      const made = await episodeView(one);
      if (latest !== one) return;
      detail.replaceChildren(...made);
      const open = detail.querySelector("details.rollout[open]");
      await open?.fill();
      if (latest === one && open && value(one, "role") !== "proposer") {
        const covered = detail.querySelector(".colours").offsetHeight;
        detail.scrollTop = open.closest(".stage").offsetTop - detail.offsetTop - covered;
      }
    } catch (error) {
      if (latest === one) detail.replaceChildren(el("p", { class: "note" }, error.message));
    }
  };
  const list = new VirtualList("Trajectories", rowOf, show);
  const shown = el("p", { class: "count" });
  const apply = () => {
    const found = filtered();
    list.show(found);
    shown.textContent = `${number(found.length)} of ${number(total)} trajectories`;
    say(shown.textContent);
  };
  let due;
  const form = filterForm(() => { clearTimeout(due); due = setTimeout(apply, 120); });
  const back = el("button", { type: "button", class: "small back", onclick: () => list.box.focus() }, "Back to the list");
  queueMicrotask(() => {
    apply();
    const place = wanted === undefined ? -1 : list.items.indexOf(byAddress().get(wanted));
    list.go(Math.max(0, place));
  });
  activeList = list;
  return [el("div", { class: "columns" }, el("div", { class: "side" }, form, shown, list.box), el("div", { class: "read" }, back, detail))];
}

const VIEWS = { overview: ["Overview", overview], trajectories: ["Trajectories", trajectories], ...(runs.length > 1 ? { compare: ["Compare", compareView] } : {}) };

function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const view = Object.hasOwn(VIEWS, name) ? name : "overview";
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.getAttribute("href") === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  activeList = null;
  const wanted = rest.length ? rest.join("/") : undefined;
  document.body.dataset.view = view;
  document.getElementById("main").replaceChildren(...VIEWS[view][1](wanted));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && activeList) return activeList.box.focus();
  if (typing) return;
  if (event.key === "/" && document.getElementById("search")) {
    event.preventDefault();
    document.getElementById("search").focus();
  }
  const by = { j: 1, k: -1 }[event.key];
  if (by && activeList) activeList.go(activeList.chosen + by);
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
document.getElementById("names").append(prose(runs.map((run) => `${run.name} · ${run.system}`).join(" and ")));
document.getElementById("tabs").append(...Object.entries(VIEWS).map(([name, [title]]) => el("a", { href: `#${name}` }, title)));
addEventListener("hashchange", route);
route();
