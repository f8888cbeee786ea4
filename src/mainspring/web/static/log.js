// The log: opens at its end and follows it, loads earlier parts on scroll, and searches.
const log = document.getElementById("log");
const query = document.getElementById("log-search");
const matches = document.getElementById("log-matches");
const toEnd = document.getElementById("to-end");
const MAX_PIECES = 20000;
const MAX_MATCHES = 5000;
const MAX_RANGES_BACK = 60;
const NEAR_END_PX = 24;
let loading = null;
let ranges = [];
let at = -1;

const atEnd = () => log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR_END_PX;
const down = () => { log.scrollTop = log.scrollHeight; };

// After a carriage return the next output overwrites the line.
function append(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const stays = atEnd();
  const last = log.lastElementChild;
  const first = template.content.firstElementChild;
  const same = last?.matches(".tail") && first && last.classList[0] === first.classList[0];
  if (same && ("cr" in last.dataset || "over" in first.dataset)) last.remove();
  log.append(template.content);
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
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
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

function show() {
  const some = globalThis.CSS?.highlights;
  some?.set("found", new Highlight(...ranges));
  some?.delete("here");
  const range = ranges[at];
  if (range) {
    some?.set("here", new Highlight(range));
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

if (log) {
  document.querySelector(".log-search").hidden = false;
  document.addEventListener("mainspring:log", (event) => append(event.detail));
  log.addEventListener("scroll", () => {
    button();
    if (log.scrollTop < 300) earlier();
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
