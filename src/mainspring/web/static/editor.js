// The YAML editors: what the text defines (graph, next fires) and its problems are fetched while the user types and shown beside it,
// problems also at their lines, and keys are completed. Without script, "Review" shows the same.
const aside = document.querySelector("[data-preview-at]");
const frame = document.querySelector("[data-code]");
const area = frame?.querySelector("textarea");
const DELAY_MS = 300;
const LINE_PX = 20;
const PADDING_PX = 8;
const MAX_SUGGESTED = 30;
let timer = null;
let asking = null;
let refreshed = false; // until then, the problems are those that came with the page

// Problems at their lines ------------------------------------------------------------------------------------
const marks = document.createElement("div");
marks.className = "marks";
marks.setAttribute("aria-hidden", "true"); // the list beside the text says the same
const sheet = document.createElement("section");
marks.append(sheet);

function mark() {
  const lines = area.value.split("\n");
  const seen = new Map();
  for (const link of (refreshed ? aside : document).querySelectorAll("a[data-line]")) {
    if (!seen.has(link.dataset.line)) seen.set(link.dataset.line, link.dataset.message);
  }
  sheet.replaceChildren(...[...seen].map(([line, message]) => {
    const row = document.createElement("div");
    row.style.top = `${PADDING_PX + (line - 1) * LINE_PX}px`;
    const ghost = document.createElement("span");
    ghost.className = "ghost";
    ghost.textContent = lines[line - 1] ?? "";
    const says = document.createElement("span");
    says.className = "says";
    says.textContent = message;
    row.append(ghost, says);
    return row;
  }));
  scroll();
}

function scroll() {
  const left = area.offsetLeft;
  marks.style.left = `${left}px`;
  sheet.style.transform = `translate(${10 - area.scrollLeft}px, ${-area.scrollTop}px)`;
}

// Preview ----------------------------------------------------------------------------------------------------
async function refresh() {
  asking?.abort();
  const mine = (asking = new AbortController());
  const body = new URLSearchParams({ csrf: area.form.elements.csrf.value, text: area.value, saved: aside.dataset.saved });
  const answer = await fetch(aside.dataset.previewAt, { method: "POST", body, signal: mine.signal }).catch(() => null);
  const html = answer?.ok ? await answer.text().catch(() => null) : null;
  if (mine.signal.aborted) return;
  if (html === null) {
    const text = answer?.status === 413 ? "The text is too long for a preview." : "The server does not respond. The preview may be outdated.";
    document.getElementById("preview-problems").textContent = text;
    aside.classList.add("outdated");
    return;
  }
  refreshed = true;
  const template = document.createElement("template");
  template.innerHTML = html;
  const shown = template.content.getElementById("preview-body");
  // A text with problems keeps what the last valid one defined, dimmed.
  aside.classList.toggle("outdated", !shown);
  for (const fresh of [...template.content.children]) document.getElementById(fresh.id).replaceWith(fresh);
  const picture = shown?.querySelector("#picture");
  if (picture) document.dispatchEvent(new CustomEvent("mainspring:new", { detail: picture }));
  mark();
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, DELAY_MS);
}

// Completion of keys -----------------------------------------------------------------------------------------
const tree = JSON.parse(frame?.dataset.keys ?? "{}");
const list = document.createElement("ul");
list.className = "keys-known";
list.id = "keys-known";
list.setAttribute("role", "listbox");
list.setAttribute("aria-label", "Keys");
list.hidden = true;

const KEY = /^(\s*(?:- )*)([A-Za-z_]*)$/;
const PARENT = /^(\s*(?:- )*)["']?([^\s"':#][^"':]*)["']?:/;

// The keys that fit where the cursor is, and the part of one that is typed.
function suggestions() {
  const before = area.value.slice(0, area.selectionStart);
  const above = before.split("\n");
  const typed = KEY.exec(above.pop());
  if (!typed || /^\S/.test(area.value.slice(area.selectionStart))) return null;
  let depth = typed[1].length;
  const path = typed[1].includes("- ") ? ["*"] : [];
  if (path.length) depth = typed[1].indexOf("-");
  for (const line of above.reverse()) {
    const parent = PARENT.exec(line);
    if (!parent || line.trim() === "---") { if (line.trim() === "---") break; else continue; }
    const indent = parent[1].length;
    if (indent >= depth) continue;
    path.unshift(parent[2]);
    depth = indent;
    if (parent[1].includes("- ")) {
      path.unshift("*");
      depth = parent[1].indexOf("-");
    }
    if (!depth) break;
  }
  let node = tree;
  for (const part of path) node = node?.[part] ?? node?.["*"];
  const keys = Object.keys(node || {}).filter((key) => key !== "*" && key.startsWith(typed[2]) && key !== typed[2]);
  return keys.length ? { keys: keys.slice(0, MAX_SUGGESTED), typed: typed[2], indent: typed[1].length, row: above.length } : null;
}

function suggest() {
  const found = area.selectionStart === area.selectionEnd ? suggestions() : null;
  // An empty line offers its keys on request only (Ctrl+Space).
  if (!found || (!found.typed && !suggest.asked)) return close();
  list.replaceChildren(...found.keys.map((key, n) => {
    const item = document.createElement("li");
    item.id = `key-${n}`;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(n === 0));
    item.textContent = key;
    return item;
  }));
  list.dataset.typed = found.typed;
  const column = parseFloat(getComputedStyle(area).fontSize) * 0.602;
  list.style.left = `${area.offsetLeft + 10 + found.indent * column - area.scrollLeft}px`;
  list.style.top = `${frame.offsetTop + Math.min(frame.clientHeight - 30, PADDING_PX + (found.row + 1) * LINE_PX - area.scrollTop)}px`;
  list.hidden = false;
  area.setAttribute("aria-activedescendant", "key-0");
}

function close() {
  list.hidden = true;
  suggest.asked = false;
  area.removeAttribute("aria-activedescendant");
}

function select(by) {
  const items = [...list.children];
  const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  const next = items[(at + by + items.length) % items.length];
  items[at].setAttribute("aria-selected", "false");
  next.setAttribute("aria-selected", "true");
  next.scrollIntoView({ block: "nearest" });
  area.setAttribute("aria-activedescendant", next.id);
}

function accept(item) {
  const rest = `${item.textContent.slice(list.dataset.typed.length)}: `;
  close();
  area.focus();
  area.setRangeText(rest, area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

function press(event) {
  if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    suggest.asked = true;
    return suggest();
  }
  if (list.hidden) return;
  const action = { ArrowDown: () => select(1), ArrowUp: () => select(-1), Escape: close,
    Enter: () => accept(list.querySelector("[aria-selected=true]")), Tab: () => accept(list.querySelector("[aria-selected=true]")) }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

if (aside && area) {
  aside.hidden = false;
  frame.append(marks);
  frame.after(list);
  frame.parentElement.style.position = "relative";
  const drawn = document.querySelector(".review #picture");
  if (drawn) {
    // The graph of the review moves beside the text: a page has one graph.
    document.getElementById("preview-body").append(drawn);
    dispatchEvent(new Event("resize"));
  }
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  area.addEventListener("input", () => { soon(); mark(); suggest(); });
  area.addEventListener("scroll", () => { scroll(); close(); });
  area.addEventListener("keydown", press);
  area.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // keeps the focus in the text
    const item = event.target.closest("li");
    if (item) accept(item);
  });
  mark();
  refresh();
}
