// Makes pages live. Without it they are complete, but static.
"use strict";

// Regions that the server refreshes: <section data-live="address"> … </section>
function follow(region) {
  let source = null, waiting = null;
  const status = document.querySelector("[data-live-status]");
  const tell = (text) => {
    if (!status) return;
    status.hidden = false;
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("live-lost", text !== "live");
  };
  // While a user selects rows or edits a filter, the last version waits.
  const show = (html) => {
    const held = busy(region);
    waiting = held || !swap(region, html) ? html : null;
    tell(held ? "paused while you select" : "live");
  };
  const again = () => { if (waiting !== null) setTimeout(() => { if (waiting !== null) show(waiting); }); };
  for (const done of ["change", "focusout", "selectionchange"]) document.addEventListener(done, again);
  region.addEventListener("pointerleave", again);
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(region.dataset.live);
    source.addEventListener("part", (event) => show(event.data));
    source.addEventListener("over", () => { close(); location.reload(); });
    source.onerror = () => tell("connecting again"); // the browser reconnects
  };
  const close = () => { if (source) { source.close(); source = null; } };
  // A hidden page closes its stream, and leaves its connection to other tabs.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
}

// Regions of pages without a stream: <div data-reload="seconds"> … </div>
function refresh(region) {
  setInterval(async () => {
    if (document.hidden) return;
    const answer = await fetch(location.href).catch(() => null);
    if (!answer) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-reload]");
    if (made) swap(region, made.innerHTML); else location.reload();
  }, region.dataset.reload * 1000);
}

function busy(region) {
  if (!("byRow" in region.dataset)) return false;
  return Boolean(region.querySelector("tbody input:checked") || document.activeElement?.closest("form.filters"));
}

// Parsed outside the document, so that no script in it runs. Returns whether all of it is shown.
function swap(region, html) {
  const chosen = document.getSelection();
  if (chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode)) return false;
  const held = region.contains(document.activeElement) ? document.activeElement : null;
  const name = held && (held.id ? `#${CSS.escape(held.id)}` : held.getAttribute("href"));
  const made = new DOMParser().parseFromString(html, "text/html");
  const whole = !("byRow" in region.dataset) || !region.matches(":hover") || !matchMedia("(hover: hover)").matches
    || !region.querySelector("tr[data-id]");
  if (whole) region.replaceChildren(...made.body.childNodes);
  else patch(region, made);
  if (name && !region.contains(document.activeElement)) {
    const again = name.startsWith("#") ? region.querySelector(name)
      : [...region.querySelectorAll("a")].find((link) => link.getAttribute("href") === name);
    if (again) again.focus({ preventScroll: true });
  }
  times();
  region.dispatchEvent(new Event("swapped"));
  return whole;
}

// Under the pointer, rows change in place: none is added, removed or moved.
function patch(region, made) {
  const fresh = new Map([...made.querySelectorAll("tr[data-id]")].map((row) => [row.dataset.id, row]));
  for (const row of region.querySelectorAll("tr[data-id]")) {
    if (fresh.has(row.dataset.id)) row.replaceChildren(...fresh.get(row.dataset.id).childNodes);
  }
}

// Keeps "3 s ago" current. The page has the database's time; this clock only counts on.
const began = performance.now();
function now() { return Number(document.body.dataset.now) + (performance.now() - began) / 1000; }

function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  for (const [size, unit, smaller, lesser] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds >= size) {
      const small = Math.floor((seconds % size) / smaller);
      return `${Math.floor(seconds / size)} ${unit}` + (small ? ` ${small} ${lesser}` : "");
    }
  }
}

function times() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const seconds = Date.parse(element.dateTime) / 1000 - now();
    if (!Number.isFinite(seconds)) continue;
    const said = Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
    if (element.textContent !== said) element.textContent = said;
  }
}

// A chart's legend shows the values at the pointer, else the latest; both are read from the lines.
const PLOT = { width: 600, height: 140 };
const SAYS = {
  number: (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 }),
  seconds: (value) => (value < 1 ? `${Number((value * 1000).toPrecision(2))} ms` : span(value)),
};

function read(plot, place) {
  const x = (PLOT.width * place / Math.max(1, plot.dataset.points - 1)).toFixed(1);
  return [...plot.querySelectorAll(".line")].map((line) => {
    const y = new RegExp(`[ML]${x.replace(".", "\\.")} ([\\d.]+)`).exec(line.getAttribute("d"));
    return y ? SAYS[plot.dataset.unit](plot.dataset.top * (1 - y[1] / PLOT.height)) : "–";
  });
}

function point(event) {
  const plot = event.target.closest ? event.target.closest(".plot svg") : null;
  for (const other of document.querySelectorAll(".plot .cursor")) if (other.parentNode !== plot) unpoint(other);
  if (!plot) return;
  const box = plot.getBoundingClientRect(), last = plot.dataset.points - 1;
  const place = Math.min(last, Math.max(0, Math.round((event.clientX - box.left) / box.width * last)));
  const figure = plot.closest("figure"), values = read(plot, place);
  figure.querySelectorAll("[data-value]").forEach((value, number) => {
    value.dataset.value ||= value.textContent;
    value.textContent = values[number];
  });
  const about = figure.querySelector("figcaption span");
  about.dataset.about ||= about.textContent;
  const ago = (last - place) * plot.dataset.step;
  about.textContent = ago ? `${span(ago)} ago` : "now";
  const cursor = plot.querySelector(".cursor") || plot.appendChild(document.createElementNS(plot.namespaceURI, "path"));
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("d", `M${PLOT.width * place / Math.max(1, last)} 0V${PLOT.height}`);
}

function unpoint(cursor) {
  const figure = cursor.closest("figure");
  for (const value of figure.querySelectorAll("[data-value]")) value.textContent = value.dataset.value;
  const about = figure.querySelector("figcaption span");
  about.textContent = about.dataset.about;
  cursor.remove();
}
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);

// Shows a confirmation page as a dialog.
async function ask(address, opener) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  const made = new DOMParser().parseFromString(await answer.text(), "text/html");
  const question = made.getElementById("question");
  if (!answer.ok || !question) { location.assign(address); return; }
  const dialog = document.createElement("dialog");
  const title = question.querySelector("h1");
  if (title) { title.id = "question-title"; dialog.setAttribute("aria-labelledby", title.id); }
  dialog.append(question);
  document.body.append(dialog);
  dialog.addEventListener("close", () => { dialog.remove(); opener.focus(); });
  for (const cancel of question.querySelectorAll("[data-cancel]")) {
    cancel.addEventListener("click", (event) => { event.preventDefault(); dialog.close(); });
  }
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest ? event.target.closest("a[data-ask]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  ask(link.href, link).catch(() => location.assign(link.href));
});

// A form of a question: its fields are added to the button's URL.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-ask-form]")) return;
  event.preventDefault();
  const address = `${event.submitter.formAction}?${new URLSearchParams(new FormData(event.target))}`;
  ask(address, event.submitter).catch(() => location.assign(address));
});

// Copy buttons. Browsers allow them only in secure contexts.
function copying(button) {
  if (!navigator.clipboard) return;
  const label = [...button.childNodes];
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.replaceChildren("Copied");
    setTimeout(() => button.replaceChildren(...label), 1500);
  });
}

for (const button of document.querySelectorAll("[data-copy]")) copying(button);
document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
for (const region of document.querySelectorAll("[data-live]")) follow(region);
for (const region of document.querySelectorAll("[data-reload]")) refresh(region);
times();
setInterval(times, 1000);

// Keys: / search, j and k the next and previous row, x selects it, Enter opens it, ? this list.
const KEYS = [["/", "search"], ["j", "next row"], ["k", "previous row"], ["x", "select it"], ["Enter", "open it"], ["?", "these keys"]];

function rows() {
  const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a[href]"));
  return links.filter((link) => link !== null);
}

function move(step) {
  const links = rows();
  if (!links.length) return;
  const row = document.activeElement.closest ? document.activeElement.closest("tr") : null;
  const here = links.findIndex((link) => row !== null && link.closest("tr") === row);
  const next = here < 0 ? (step > 0 ? 0 : links.length - 1) : here + step;
  links[Math.min(links.length - 1, Math.max(0, next))].focus();
}

function select() {
  document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click();
}

function search() {
  const field = document.querySelector("main input[type=search]") || document.querySelector("main form.filters input:not([type=hidden])");
  if (field) { field.focus(); field.select(); }
}

function explain() {
  if (document.querySelector("dialog[open]")) return;
  const dialog = document.createElement("dialog");
  const box = document.createElement("div");
  box.className = "question";
  const title = document.createElement("h1");
  title.id = "keys-title";
  title.textContent = "Keys";
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [key, does] of KEYS) {
    const name = document.createElement("dt");
    name.append(Object.assign(document.createElement("kbd"), { textContent: key }));
    list.append(name, Object.assign(document.createElement("dd"), { textContent: does }));
  }
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  close.addEventListener("click", () => dialog.close());
  box.append(title, list, close);
  dialog.setAttribute("aria-labelledby", title.id);
  dialog.append(box);
  document.body.append(dialog);
  const before = document.activeElement;
  dialog.addEventListener("close", () => { dialog.remove(); if (before) before.focus(); });
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest && event.target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]")) return;
  const action = { "/": search, "j": () => move(1), "k": () => move(-1), "x": select, "?": explain }[event.key];
  if (action) { event.preventDefault(); action(); }
});
