// Curves of metrics over steps, one chart for a metric with a line for each role and run.

const WIDTH = 360, HEIGHT = 170, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 22;
const ROLES = ["", "solver", "proposer"];

function linesOf(name) {
  return runs.flatMap((run, place) => ROLES.flatMap((role) => {
    const values = run.metrics.values[role ? `${role}/${name}` : name];
    if (!values?.some((one) => one !== null)) return [];
    const points = run.metrics.steps.map((step, row) => [step, values[row]]).filter(([, one]) => one !== null && one !== undefined);
    return [{ label: [seriesName(place), role].filter(Boolean).join(" ") || "policy", role, place, points }];
  }));
}

function allMetrics() {
  const bare = (name) => name.replace(/^(solver|proposer)\//, "");
  return [...new Set(runs.flatMap((run) => Object.keys(run.metrics.values).map(bare)))].sort();
}

function ticks(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2));
  const size = [5, 2, 1].map((times) => times * step).find((one) => (high - low) / one >= 2) ?? step;
  const found = [];
  for (let at = Math.ceil(low / size) * size; at <= high + size / 1e6; at += size) found.push(Math.abs(at) < size / 1e6 ? 0 : at);
  return found;
}

function bounds(lines) {
  const all = lines.flatMap((line) => line.points);
  const [steps, values] = [0, 1].map((axis) => all.map((point) => point[axis]));
  const least = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
  let [x0, x1, y0, y1] = [least(steps), most(steps), least(values), most(values)];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  if (y0 >= 0 && y0 < (y1 - y0) * 1.5) y0 = 0;
  if (y0 === 0 && y1 === 0) y1 = 1;
  if (y0 === y1) [y0, y1] = [y0 - (Math.abs(y0) || 1) / 2, y1 + (Math.abs(y1) || 1) / 2];
  return { x0, x1, y0, y1 };
}

function chart(title, name) {
  const lines = linesOf(name);
  if (!lines.length) return null;
  const { x0, x1, y0, y1 } = bounds(lines);
  const x = (step) => LEFT + (step - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
  const y = (at) => TOP + (y1 - at) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  const said = lines.map((line) => `${line.label} from ${number(line.points[0][1])} to ${number(line.points.at(-1)[1])}`);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} over steps ${x0} to ${x1}: ${said.join("; ")}` });
  for (const at of ticks(y0, y1)) {
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }),
      svg("text", { class: "tick end", x: LEFT - 5, y: y(at) + 3.5 }, Math.abs(at) >= 1e4 || (at && Math.abs(at) < 1e-3) ? at.toExponential(0) : String(+at.toPrecision(3))));
  }
  for (const at of ticks(x0, x1).filter(Number.isInteger)) {
    picture.append(svg("text", { class: "tick middle", x: x(at), y: HEIGHT - 6 }, String(at)));
  }
  runs.forEach((run, place) => run.warnings.filter((one) => one.step >= x0 && one.step <= x1).forEach((one) => {
    picture.append(svg("line", { class: `warned run${place}`, x1: x(one.step), x2: x(one.step), y1: TOP, y2: HEIGHT - BOTTOM }));
  }));
  for (const line of lines) {
    const path = line.points.map(([step, at], place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(at).toFixed(1)}`).join("");
    picture.append(svg("path", { class: `line ${line.role || "policy"} run${line.place}`, d: path }));
    if (line.points.length < 40) {
      for (const [step, at] of line.points) picture.append(svg("circle", { class: `dot ${line.role || "policy"} run${line.place}`, cx: x(step), cy: y(at), r: 2 }));
    }
  }
  return figure(title, name, lines, picture, { x, x0, x1 });
}

function figure(title, name, lines, picture, { x, x0, x1 }) {
  const cursor = svg("line", { class: "cursor", x1: -9, x2: -9, y1: TOP, y2: HEIGHT - BOTTOM });
  picture.append(cursor);
  const last = Math.max(...lines.map((line) => line.points.at(-1)[0]));
  const readout = el("p", { class: "readout" });
  const steps = [...new Set(lines.flatMap((line) => line.points.map(([step]) => step)))].sort((a, b) => a - b);
  let shown = last;
  const show = (step, marked = true) => {
    shown = step;
    const at = marked ? x(step) : -9;
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    const found = lines.map((line) => [line, marked ? line.points.find((point) => point[0] === step) : line.points.at(-1)]);
    readout.replaceChildren(marked ? `step ${step}` : "last", ...found.map(([line, point]) =>
      el("span", { class: `key ${line.role || "policy"} run${line.place}` }, lines.length > 1 ? `${line.label} ` : "", number(point?.[1]))));
  };
  const nearest = (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = x0 + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (x1 - x0);
    return steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best), steps[0]);
  };
  show(last, false);
  const caption = el("figcaption", {}, el("strong", {}, title), el("code", {}, name));
  return el("figure", {
    tabindex: 0,
    "aria-label": `${title}; the arrow keys read it step by step`,
    onpointermove: (event) => show(nearest(event)),
    onpointerleave: () => show(last, false),
    onkeydown: (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      show(steps[Math.min(steps.length - 1, Math.max(0, steps.indexOf(shown) + by))]);
      say(readout.textContent);
    },
  }, caption, picture, readout);
}
