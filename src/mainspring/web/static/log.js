// The log: opens at its end and follows it, loads earlier parts on scroll, searches, and shows or hides timestamps.
const log = document.getElementById("log");
const query = document.getElementById("log-search");
const matches = document.getElementById("log-matches");
const toEnd = document.getElementById("to-end");
const times = document.getElementById("log-times");
const TIMES_KEY = "mainspring.log.times";
const MAX_PIECES = 20000;
const MAX_MATCHES = 5000;
const MAX_RANGES_BACK = 60;
const NEAR_END_PX = 24;
let loading = null;
let ranges = [];
let at = -1;

const atEnd = () => log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR_END_PX;
const down = () => { log.scrollTop = log.scrollHeight; };

// The element that takes new output: the group that is open, else the log.
function target() {
  const last = log.lastElementChild;
  return last?.matches(".log-group[data-open]") ? last : log;
}

// After a carriage return the next output overwrites the line.
function append(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const stays = atEnd();
  const last = target().lastElementChild;
  const first = template.content.firstElementChild;
  const same = last?.matches(".tail") && first && last.classList[0] === first.classList[0];
  if (same && ("cr" in last.dataset || "over" in first.dataset)) last.remove();
  for (const element of [...template.content.children]) {
    if (element.matches(".group-end, .log-group, .attempt")) delete target().dataset.open;
    if (!element.matches(".group-end")) target().append(element);
  }
  while (log.childElementCount > MAX_PIECES) log.firstElementChild.remove();
  if (stays) down();
  button();
}

function button() {
  toEnd.hidden = atEnd();
}

// Fetch the range before a place; null if there is none or the server does not answer.
async function before(place) {
  const answer = log.dataset.earlier && place ? await fetch(`${log.dataset.earlier}?before=${place}`).catch(() => null) : null;
  if (!answer?.ok) return null;
  const template = document.createElement("template");
  template.innerHTML = await answer.text();
  if (answer.headers.get("x-more") !== "yes") delete log.dataset.earlier;
  return template.content;
}

// Load the range before the first one shown; with a search text, ranges back to its first match. One layout for all.
async function bring(wanted) {
  const ranges = [];
  let place = log.querySelector("[data-at]")?.dataset.at;
  let after = log.textContent.slice(0, wanted.length).toLowerCase();
  while (ranges.length < (wanted ? MAX_RANGES_BACK : 1) && wanted === (wanted && query.value.toLowerCase())) {
    const range = await before(place);
    if (!range) break;
    ranges.unshift(range);
    place = range.querySelector("[data-at]")?.dataset.at;
    const text = range.textContent.toLowerCase();
    if (wanted && (text + after).includes(wanted)) break;
    after = text.slice(0, wanted.length);
  }
  const below = log.scrollHeight - log.scrollTop;
  log.prepend(...ranges);
  log.scrollTop = log.scrollHeight - below;
}

async function earlier(wanted = "") {
  loading ??= bring(wanted).finally(() => { loading = null; });
  return loading;
}

// Find all matches, also across colours and pieces of output.
function search() {
  ranges = [];
  const wanted = query.value.toLowerCase();
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest(".log-fold > summary") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const nodes = [];
  let length = 0;
  while (wanted && walker.nextNode()) {
    nodes.push({ node: walker.currentNode, start: length });
    length += walker.currentNode.length;
  }
  const raw = nodes.map(({ node }) => node.data).join("");
  const lower = raw.toLowerCase();
  const text = lower.length === raw.length ? lower : raw; // lower case changes the length of a few letters
  let n = 0;
  const place = (offset) => {
    while (n + 1 < nodes.length && nodes[n + 1].start <= offset) n += 1;
    return [nodes[n].node, offset - nodes[n].start];
  };
  for (let from = text.indexOf(wanted); nodes.length && from >= 0 && ranges.length < MAX_MATCHES; from = text.indexOf(wanted, from + wanted.length)) {
    const range = new Range();
    range.setStart(...place(from));
    const [node, offset] = place(from + wanted.length - 1);
    range.setEnd(node, offset + 1);
    ranges.push(range);
  }
  at = ranges.length - 1; // start with the last match: the page opens at the end
  show();
}

// Open the fold or group that hides a match.
function unfold(node) {
  const closed = node.parentElement.closest("#log details:not([open])");
  if (!closed) return;
  closed.open = true;
  unfold(closed);
}

function show() {
  const some = globalThis.CSS?.highlights;
  some?.set("found", new Highlight(...ranges));
  some?.delete("here");
  const range = ranges[at];
  if (range) {
    some?.set("here", new Highlight(range));
    unfold(range.startContainer);
    const box = range.getBoundingClientRect();
    const frame = log.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) log.scrollTop += box.top - frame.top - frame.height / 2;
  }
  const none = log.dataset.earlier ? "no match yet: Enter searches older output" : "no match";
  matches.textContent = !query.value ? "" : ranges.length ? `${at + 1} of ${ranges.length}` : none;
}

async function step(by) {
  if (ranges.length && at + by >= 0) {
    at = (at + by) % ranges.length;
    return show();
  }
  // No match left here: search earlier ranges.
  const known = ranges.length;
  if (log.dataset.earlier) matches.textContent = "searching older output";
  await loading;
  await earlier(query.value.toLowerCase());
  search();
  if (known && ranges.length > known) at = ranges.length - known - 1;
  show();
}

function stamp(on) {
  const below = log.scrollHeight - log.scrollTop;
  log.classList.toggle("stamped", on);
  times?.setAttribute("aria-pressed", String(on));
  log.scrollTop = log.scrollHeight - below;
}

function recall() {
  try { return localStorage.getItem(TIMES_KEY) === "yes"; } catch { return false; }
}

if (log && query) { // without output there is nothing to search
  if (times) {
    times.hidden = false;
    times.addEventListener("click", () => {
      const on = !log.classList.contains("stamped");
      stamp(on);
      try { localStorage.setItem(TIMES_KEY, on ? "yes" : "no"); } catch { /* private window: not stored */ }
    });
    if (recall()) stamp(true);
  }
  document.querySelector(".log-search").hidden = false;
  document.addEventListener("mainspring:log", (event) => append(event.detail));
  log.addEventListener("scroll", () => {
    button();
    // Not while a part is folded: the range before it would appear above the fold.
    if (log.scrollTop < 300 && !log.querySelector(":scope > .log-fold:not([open])")) earlier();
  }, { passive: true });
  toEnd.addEventListener("click", down);
  query.addEventListener("input", search);
  query.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? 1 : -1);
  });
  down();
  button();
}
