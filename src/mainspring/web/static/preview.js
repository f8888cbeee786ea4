// A form with data-preview: the explanation of its schedule is fetched while the user types and replaces the element
// with that id. Without script the form loads the whole page.
const form = document.querySelector("form[data-preview]");
const NAMES = ["expression", "zone", "job"];
const DELAY_MS = 200;
let timer = null;
let asking = null;

function query() {
  const given = new URLSearchParams();
  for (const name of NAMES) {
    const value = form.elements[name]?.value.trim();
    if (value || (name === "expression" && form.dataset.preview === "proposed")) given.set(name, value);
  }
  return given;
}

async function refresh() {
  const given = query();
  if (form.method === "get") history.replaceState(null, "", `${location.pathname}${given.size ? `?${given}` : ""}`);
  given.set("local", Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  given.set("part", "1");
  asking?.abort();
  const mine = (asking = new AbortController());
  const answer = await fetch(`${form.getAttribute("action")}?${given}`, { signal: mine.signal }).catch(() => null);
  if (mine.signal.aborted) return;
  if (answer?.status === 401) return location.reload();
  if (!answer?.ok) return show('<p class="alarm bad" role="alert">The server does not respond. The preview may be outdated.</p>', true);
  show(await answer.text(), false);
}

function show(html, keep) {
  const old = document.getElementById(form.dataset.preview);
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content.firstElementChild;
  if (keep) {
    if (!old.previousElementSibling) old.before(fresh);
    return;
  }
  document.dispatchEvent(new CustomEvent("mainspring:new", { detail: fresh }));
  old.previousElementSibling?.remove();
  old.replaceWith(fresh);
}

function fit() {
  const box = form.elements.expression;
  box.rows = Math.min(16, Math.max(1, box.value.split("\n").length));
}

function soon() {
  fit();
  clearTimeout(timer);
  timer = setTimeout(refresh, DELAY_MS);
}

form.addEventListener("input", soon);
form.elements.expression.addEventListener("keydown", (event) => {
  // Enter submits, Shift+Enter inserts a line break.
  if (event.key === "Enter" && !event.shiftKey && form.method === "get") {
    event.preventDefault();
    refresh();
  }
});
document.addEventListener("click", (event) => {
  const sample = event.target.closest("[data-expression]");
  if (!sample) return;
  event.preventDefault();
  form.elements.expression.value = sample.dataset.expression;
  fit();
  refresh();
});

function selectAll() {
  form.elements.expression.select();
}

fit();
if (form.elements.expression.autofocus) {
  // What is typed replaces the example. The browser focuses the field before or after this script runs.
  if (document.activeElement === form.elements.expression) selectAll();
  else form.elements.expression.addEventListener("focus", selectAll, { once: true });
}
const typed = form.elements.expression.value;
// Text that was typed before this script ran raised no event here.
if (typed !== form.elements.expression.defaultValue) soon();
else if (typed.trim() && form.dataset.preview === "explained") refresh();
