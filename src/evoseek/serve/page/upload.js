// Upload of documents: chosen or dropped, sent a few at a time, then followed until the index has them.
"use strict";

const SENT_AT_ONCE = 3, LOOK_MS = 1500, READING = "is being read ...";
let uploadLimits; // undefined: the server takes no files
const unsent = [], rows = new Map(); // rows: what is shown of a file, by its path, until it is read
let sending = 0, following = false;

function offerUpload(limits) {
  uploadLimits = limits;
  $("upload").hidden = !limits;
  if (limits) $("files").accept = limits.types.join(",");
}

function add(files) {
  for (const file of files) {
    const row = element("li"), text = element("span", "", "is being sent ...");
    const bar = Object.assign(element("progress"), { max: 1, value: 0 });
    bar.setAttribute("aria-label", `Sending ${file.name}`);
    row.append(element("b", "", file.name), " ", text, bar);
    $("uploads").append(row);
    if (file.size > uploadLimits.max_bytes) ended({ text, bar }, `not sent: more than ${Math.floor(uploadLimits.max_bytes / 2 ** 20)} MiB`);
    else unsent.push({ file, text, bar });
  }
  sendNext();
}

function ended(row, text, isRead = false) {
  row.text.textContent = text;
  row.text.className = isRead ? "" : "note";
  row.bar.remove();
}

function sendNext() {
  while (sending < SENT_AT_ONCE && unsent.length) {
    sending++;
    send(unsent.shift());
  }
}

function send(row) {
  const request = new XMLHttpRequest(); // fetch tells no progress
  request.open("PUT", `v1/uploads/${encodeURIComponent(row.file.name)}`);
  if (key) request.setRequestHeader("Authorization", `Bearer ${key}`);
  request.upload.onprogress = ({ loaded, total }) => {
    row.bar.value = loaded / Math.max(total, 1);
  };
  request.onloadend = () => {
    sending--;
    const reply = replyOf(request);
    if (request.status === 429) {
      setTimeout(() => { unsent.push(row); sendNext(); }, 1000);
    } else if (request.status === 201) {
      row.text.textContent = READING;
      row.bar.removeAttribute("value");
      rows.set(reply.file, row);
      followUploads();
    } else {
      ended(row, `not taken: ${reply.error?.message ?? "the server does not answer"}`);
    }
    sendNext();
  };
  request.send(row.file);
}

function replyOf(request) {
  try {
    return JSON.parse(request.responseText);
  } catch {
    return {};
  }
}

async function followUploads() {
  if (following) return;
  following = true;
  while (rows.size) {
    await new Promise((done) => setTimeout(done, LOOK_MS));
    const response = await fetch("v1/uploads", { headers: headers() }).catch(() => null);
    if (!response?.ok) continue;
    const { files, error } = await response.json();
    for (const file of files.filter((one) => one.state !== "waiting" && rows.has(one.file))) {
      const found = file.state === "read" ? `${file.passages} passage${file.passages === 1 ? "" : "s"}` : "not read";
      ended(rows.get(file.file), [found, ...file.skipped, ...file.warnings].join("; "), file.state === "read");
      rows.delete(file.file);
    }
    for (const file of rows.keys()) {
      if (files.some((one) => one.file === file)) continue;
      ended(rows.get(file), "sent; what became of it is unknown, since the server was started again");
      rows.delete(file);
    }
    for (const row of rows.values()) row.text.textContent = error ? `the index was not updated (${error}); it is tried again` : READING;
  }
  following = false;
  connect();
}

$("choose").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  add($("files").files);
  $("files").value = "";
});

for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!uploadLimits || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.toggle("dropping", name === "dragenter" || name === "dragover");
    if (name !== "drop") return;
    openSide(true);
    add(event.dataTransfer.files);
  });
}
