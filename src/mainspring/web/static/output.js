// Output: opens at its end and stays there while more comes, brings what came before when one scrolls up, finds words.
const log = document.getElementById("log");
const seek = document.getElementById("seek");
const sought = document.getElementById("sought");
const toEnd = document.getElementById("to-end");
const MOST_PIECES = 20000;
const MOST_FOUND = 5000;
const MOST_BACK = 40;
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

async function earlier() {
  const first = log.querySelector("[data-at]");
  if (!log.dataset.earlier || !first) return false;
  loading ??= fetch(`${log.dataset.earlier}?before=${first.dataset.at}`)
    .then(async (answer) => {
      if (!answer.ok) return false;
      const html = await answer.text();
      const below = log.scrollHeight - log.scrollTop;
      log.insertAdjacentHTML("afterbegin", html);
      log.scrollTop = log.scrollHeight - below;
      if (answer.headers.get("x-more") !== "yes") delete log.dataset.earlier;
      return Boolean(html);
    })
    .catch(() => false)
    .finally(() => { loading = null; });
  return loading;
}

function search() {
  ranges = [];
  const wanted = seek.value.toLowerCase();
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
  while (wanted && ranges.length < MOST_FOUND && walker.nextNode()) {
    const text = walker.currentNode.data.toLowerCase();
    for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
      const range = new Range();
      range.setStart(walker.currentNode, from);
      range.setEnd(walker.currentNode, from + wanted.length);
      ranges.push(range);
    }
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
  sought.textContent = !seek.value ? "" : ranges.length ? `${at + 1} of ${ranges.length}` : "not found";
}

async function step(by) {
  if (ranges.length && at + by >= 0) {
    at = (at + by) % ranges.length;
    return show();
  }
  // Nothing here, or the first was reached: further back, range by range.
  const known = ranges.length;
  if (log.dataset.earlier) sought.textContent = "looking further back";
  for (let n = 0; n < MOST_BACK && ranges.length === known && await earlier(); n += 1) {
    search();
    if (ranges.length === known) sought.textContent = "looking further back";
  }
  if (known && ranges.length > known) at = ranges.length - known - 1;
  else if (known) at = ranges.length - 1;
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
