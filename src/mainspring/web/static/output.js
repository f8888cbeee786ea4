// Output: opens at its end and stays there while more comes, brings what came before when one scrolls up, finds words.
const log = document.getElementById("log");
const seek = document.getElementById("seek");
const sought = document.getElementById("sought");
const toEnd = document.getElementById("to-end");
const MOST_PIECES = 20000;
const MOST_FOUND = 5000;
const MOST_BACK = 60;
const NEAR = 24;
let loading = null;
let ranges = [];
let at = -1;

const atEnd = () => log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR;
const down = () => { log.scrollTop = log.scrollHeight; };

// A program that goes back to the start of a line draws over it: so does what comes after it here.
function append(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const stays = atEnd();
  const last = log.lastElementChild;
  const first = template.content.firstElementChild;
  const same = last?.matches(".tail") && first && last.classList[0] === first.classList[0];
  if (same && ("cr" in last.dataset || "over" in first.dataset)) last.remove();
  log.append(template.content);
  while (log.childElementCount > MOST_PIECES) log.firstElementChild.remove();
  if (stays) down();
  button();
}

function button() {
  toEnd.hidden = atEnd();
}

// One range before another; none if there is none, or the server does not answer.
async function before(place) {
  const answer = log.dataset.earlier && place ? await fetch(`${log.dataset.earlier}?before=${place}`).catch(() => null) : null;
  if (!answer?.ok) return null;
  const template = document.createElement("template");
  template.innerHTML = await answer.text();
  if (answer.headers.get("x-more") !== "yes") delete log.dataset.earlier;
  return template.content;
}

// What came before what is here; if words are wanted, as far back as they are found. It is laid out once, not for each range.
async function bring(wanted) {
  const ranges = [];
  let place = log.querySelector("[data-at]")?.dataset.at;
  let after = log.textContent.slice(0, wanted.length).toLowerCase();
  while (ranges.length < (wanted ? MOST_BACK : 1) && wanted === (wanted && seek.value.toLowerCase())) {
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

// Every place of the words, also where colours or another piece of output begin in the middle of them.
function search() {
  ranges = [];
  const wanted = seek.value.toLowerCase();
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
  const nodes = [];
  let length = 0;
  while (wanted && walker.nextNode()) {
    nodes.push({ node: walker.currentNode, start: length });
    length += walker.currentNode.length;
  }
  const raw = nodes.map(({ node }) => node.data).join("");
  const lower = raw.toLowerCase();
  const text = lower.length === raw.length ? lower : raw; // a few letters grow when they become small
  let n = 0;
  const place = (offset) => {
    while (n + 1 < nodes.length && nodes[n + 1].start <= offset) n += 1;
    return [nodes[n].node, offset - nodes[n].start];
  };
  for (let from = text.indexOf(wanted); nodes.length && from >= 0 && ranges.length < MOST_FOUND; from = text.indexOf(wanted, from + wanted.length)) {
    const range = new Range();
    range.setStart(...place(from));
    const [node, offset] = place(from + wanted.length - 1);
    range.setEnd(node, offset + 1);
    ranges.push(range);
  }
  at = ranges.length - 1; // the newest first: that is where the page opens
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
  const none = log.dataset.earlier ? "not found so far: Enter looks further back" : "not found";
  sought.textContent = !seek.value ? "" : ranges.length ? `${at + 1} of ${ranges.length}` : none;
}

async function step(by) {
  if (ranges.length && at + by >= 0) {
    at = (at + by) % ranges.length;
    return show();
  }
  // Nothing here, or the first was reached: further back, as far as it is found.
  const known = ranges.length;
  if (log.dataset.earlier) sought.textContent = "looking further back";
  await loading;
  await earlier(seek.value.toLowerCase());
  search();
  if (known && ranges.length > known) at = ranges.length - known - 1;
  show();
}

if (log) {
  document.querySelector(".seek").hidden = false;
  document.addEventListener("mainspring:log", (event) => append(event.detail));
  log.addEventListener("scroll", () => {
    button();
    if (log.scrollTop < 300) earlier();
  }, { passive: true });
  toEnd.addEventListener("click", down);
  seek.addEventListener("input", search);
  seek.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    step(event.shiftKey ? 1 : -1);
  });
  down();
  button();
}
