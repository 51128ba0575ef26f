// Keeps a job's page live: appends its events, and refreshes the parts above when the job changes.
"use strict";

function say(kind, data) {
  if (data === null || data === undefined) return "";
  if (typeof data !== "object" || Array.isArray(data)) return String(data).slice(0, 500);
  if (kind === "progress") {
    const of = data.total === null || data.total === undefined ? "" : ` of ${data.total}`;
    return `${data.done ?? 0}${of}${data.note ? ` – ${data.note}` : ""}`.slice(0, 500);
  }
  const rest = Object.entries(data)
    .filter(([name, value]) => name !== "message" && value !== null && value !== "")
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [...(data.message ? [String(data.message)] : []), ...rest].join(" · ").slice(0, 500);
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text; // text, never markup
  if (kind) made.className = kind;
  return made;
}

function line(told) {
  const item = document.createElement("li");
  item.append(element("span", told.kind, "kind"), " ");
  if (told.attempt) item.append(element("span", `attempt ${told.attempt}`, "quiet"), " ");
  item.append(element("span", say(told.kind, told.data), "said"), " ");
  const at = element("time", "now");
  at.dateTime = told.at;
  item.append(at);
  return item;
}

// Replace the marked parts by the server's current version.
let asked = 0;
async function refresh() {
  if (Date.now() - asked < 500) { clearTimeout(refresh.later); refresh.later = setTimeout(refresh, 500); return; }
  asked = Date.now();
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-fresh]")) {
    const now = fresh.getElementById(part.id);
    if (now && now.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
      part.replaceChildren(...now.childNodes);
    }
  }
}

function followJob(list) {
  const status = document.querySelector("[data-job-live]");
  const tell = (lost) => {
    status.hidden = false;
    status.textContent = lost ? "connecting again" : "live";
    status.classList.toggle("live-lost", lost);
  };
  const source = new EventSource(list.dataset.events);
  const soon = () => refresh().catch(() => {});
  const heard = (event) => {
    tell(false);
    const told = JSON.parse(event.data);
    if (told.kind === "cut") return; // the browser reconnects and continues from there
    if (told.kind === "end") { source.close(); status.hidden = true; soon(); return; }
    if (told.kind !== "state") {
      document.querySelector("[data-none]")?.remove();
      list.append(line(told));
    }
    if (told.kind !== "progress" && told.kind !== "log") soon();
  };
  source.onopen = () => {
    tell(false);
    for (const early of list.querySelectorAll("[data-again]")) early.remove(); // now sent with its position
  };
  source.onerror = () => tell(true); // the browser reconnects
  for (const kind of list.dataset.kinds.split(" ")) source.addEventListener(kind, heard);
}

// Appends the output that a job streams.
const MAX_OUTPUT = 2000; // pieces on the page
function followOutput(box) {
  const source = new EventSource(box.dataset.output);
  const marks = { attempt: (told) => `attempt ${told.attempt}`, truncated: () => "the output is cut off here: it has reached its limit" };
  const heard = (event) => {
    const told = JSON.parse(event.data);
    if (told.kind === "end") { source.close(); return; }
    const below = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (told.kind === "text") box.append(element("span", told.data, "text"));
    else if (told.kind === "json") box.append(element("span", JSON.stringify(told.data), "value"));
    else box.append(element("span", marks[told.kind](told), "mark"));
    if (told.kind !== "attempt") document.getElementById("output-part").hidden = false;
    while (box.childNodes.length > MAX_OUTPUT) box.firstChild.remove();
    if (below) box.scrollTop = box.scrollHeight;
  };
  for (const kind of ["text", "json", "attempt", "truncated", "end"]) source.addEventListener(kind, heard);
}

for (const box of document.querySelectorAll("[data-output]")) followOutput(box);
for (const list of document.querySelectorAll("[data-events]")) followJob(list);
// Without a script, the user presses a button.
for (const form of document.querySelectorAll("form[data-go-on]")) form.requestSubmit();
