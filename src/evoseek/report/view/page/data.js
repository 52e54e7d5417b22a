// The index of all rollouts stands in the page; their details are in packed chunks, in the page or beside it.

const index = JSON.parse(document.getElementById("index").textContent);
const runs = index.runs;
const KEPT = 24; // unpacked chunks that are kept

// Rollouts are numbered through all runs.
let total = 0;
for (const run of runs) {
  run.first = total;
  run.count = run.columns.id.length;
  total += run.count;
}
const runOf = (one) => (runs.length > 1 && one >= runs[1].first ? 1 : 0);
const value = (one, column) => {
  const run = runs[runOf(one)];
  return run.columns[column][one - run.first];
};
const questionOf = (one) => {
  const [id, text, golden] = runs[runOf(one)].questions[value(one, "question")];
  return { id, text, golden };
};
// In the page's address; half a surrogate pair cannot stand there.
const addressOf = (one) => `${runOf(one)}/${encodeURIComponent(value(one, "id").replace(/\p{Surrogate}/gu, "\ufffd"))}`;
const seriesName = (run) => (runs.length > 1 ? `${"AB"[run]}` : "");
const runName = (run) => (runs.length > 1 ? `${"AB"[run]} · ${runs[run].name}` : runs[run].name);

function lazily(make) {
  let made;
  return () => (made ??= make());
}

function grouped(column, keep) {
  return lazily(() => runs.map((run) => {
    const members = new Map();
    for (let one = run.first; one < run.first + run.count; one++) {
      if (!keep(one)) continue;
      const key = value(one, column);
      if (!members.has(key)) members.set(key, []);
      members.get(key).push(one);
    }
    return members;
  }));
}

const episodes = grouped("episode", () => true);
const byAddress = lazily(() => new Map(Array.from({ length: total }, (_, one) => [addressOf(one), one])));

// Questions by their text, over both runs: what the solver was asked.
const askedIn = lazily(() => {
  const found = new Map();
  for (let one = 0; one < total; one++) {
    if (value(one, "role") !== "solver") continue;
    const text = questionOf(one).text;
    if (!found.has(text)) found.set(text, runs.map(() => []));
    found.get(text)[runOf(one)].push(one);
  }
  return found;
});

// Proposals by the id of their question, to find where a question came from that is asked in a later step.
const proposals = lazily(() => runs.map((run) => {
  const found = new Map();
  for (let one = run.first; one < run.first + run.count; one++) {
    if (value(one, "role") === "proposer" && !value(one, "invalid")) found.set(questionOf(one).id, one);
  }
  return found;
}));

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const rules = globalThis.trustedTypes?.createPolicy("evoseek", {
  createScriptURL(name) {
    if (!/^\d+-(\d+|tokens)$/.test(name)) throw new TypeError("not the name of a data file");
    return `${encodeURIComponent(index.folder)}/${name}.js`;
  },
}) ?? { createScriptURL: (name) => `${encodeURIComponent(index.folder)}/${name}.js` };

const waiting = new Map();
globalThis.evoseekChunk = (build, key, text) => {
  if (build === index.build) waiting.get(key)?.resolve(text);
  else waiting.get(key)?.reject(new Error(`The data in ${index.folder} belong to another page. Run evoseek view again.`));
};

function fetchChunk(key) {
  const inline = document.getElementById(`chunk-${key}`);
  if (inline) return Promise.resolve(inline.textContent);
  return new Promise((resolve, reject) => {
    waiting.set(key, { resolve, reject });
    const script = document.createElement("script");
    script.onload = () => { script.remove(); waiting.delete(key); };
    script.onerror = () => reject(new Error(`The file ${key}.js is missing in ${index.folder}, which belongs beside this page.`));
    script.src = rules.createScriptURL(key);
    document.head.append(script);
  });
}

const kept = new Map();
function chunkOf(key) {
  const found = kept.get(key) ?? fetchChunk(key).then(unpack);
  kept.delete(key);
  kept.set(key, found); // the last used one last
  found.catch(() => kept.delete(key));
  for (const old of kept.keys()) {
    if (kept.size <= KEPT) break;
    if (!old.endsWith("tokens")) kept.delete(old);
  }
  return found;
}

async function detailOf(one) {
  const run = runOf(one);
  const place = one - runs[run].first;
  const chunk = await chunkOf(`${run}-${Math.floor(place / index.chunk)}`);
  return chunk[place % index.chunk];
}

const tokenTexts = (run) => chunkOf(`${run}-tokens`);
