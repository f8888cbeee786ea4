// Enhancements of forms: rows, defaults, dialogs, suggestions, line numbers. Forms work without it.
const STORAGE_PREFIX = "mainspring.form.";

// After a form was submitted, focus its errors or its review.
document.querySelector("[data-focus]")?.focus();

// When the last row is filled, add another. Field names are prefix_number_part.
document.addEventListener("input", (event) => {
  const row = event.target.closest("[data-row]");
  const rows = row ? [...row.parentElement.querySelectorAll(`[data-row="${row.dataset.row}"]`)] : [];
  if (!row || rows.at(-1) !== row || rows.length >= 20 || !event.target.value) return;
  const fresh = row.cloneNode(true);
  const renumber = (text) => text.replace(/_(\d+)_/, (_, number) => `_${Number(number) + 1}_`);
  for (const element of fresh.querySelectorAll("[id], [for], [name]")) {
    for (const name of ["id", "for", "name"]) {
      if (element.hasAttribute(name)) element.setAttribute(name, renumber(element.getAttribute(name)));
    }
    if (element.matches("[type=checkbox]")) element.checked = false;
    else if ("value" in element) element.value = "";
  }
  fresh.setAttribute("aria-label", fresh.getAttribute("aria-label").replace(/\d+/, rows.length + 1));
  row.after(fresh);
});

// Remember the values that were submitted last in this browser.
const sheet = document.querySelector("form[data-defaults]");
if (sheet) {
  const names = sheet.dataset.defaults.split(",");
  for (const name of names) {
    const field = sheet.elements[name];
    try { if (field && !field.value && !location.search) field.value = localStorage.getItem(STORAGE_PREFIX + name) ?? ""; } catch { /* private window */ }
  }
  sheet.addEventListener("submit", () => {
    for (const name of names) {
      try { localStorage.setItem(STORAGE_PREFIX + name, sheet.elements[name]?.value ?? ""); } catch { /* private window */ }
    }
  });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  getSelection().selectAllChildren(source);
  // The clipboard needs https or localhost; otherwise the text is only selected.
  const done = await navigator.clipboard?.writeText(source.textContent).then(() => true, () => false);
  button.textContent = done ? "Copied" : "Selected";
});

// A link with data-dialog opens its page as a dialog. The form is submitted as from the page.
const dialog = document.createElement("dialog");
dialog.className = "confirm-dialog";
document.body.append(dialog);
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest("[data-close]")) {
    event.preventDefault();
    dialog.close();
  }
});

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const answer = await fetch(link.href, { headers: { accept: "text/html" } }).catch(() => null);
  const page = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  const form = page?.getElementById("confirm");
  if (!form) return location.assign(link.href);
  const title = page.querySelector("main h1");
  dialog.replaceChildren(...(form.contains(title) ? [form] : [title, form]));
  dialog.setAttribute("aria-label", title.textContent);
  document.dispatchEvent(new CustomEvent("mainspring:new", { detail: dialog }));
  dialog.showModal();
});

// The filter suggests fields, then the values of a field.
const bar = document.querySelector("form[data-query] input");
if (bar) {
  const fields = JSON.parse(bar.form.dataset.query);
  const suggestions = document.getElementById("q-more");
  const suggest = () => {
    const start = bar.value.slice(0, bar.value.lastIndexOf(" ") + 1);
    const word = bar.value.slice(start.length);
    const [name, value] = word.split(":");
    const next = value === undefined
      ? Object.keys(fields).map((field) => `${field}:`)
      : (fields[name] ?? []).map((known) => `${name}:${known}`);
    suggestions.replaceChildren(...next.filter((text) => text.startsWith(word) && text !== word).map((text) => {
      const option = document.createElement("option");
      option.value = start + text;
      return option;
    }));
  };
  bar.addEventListener("input", suggest);
  bar.addEventListener("focus", suggest);
}

// A bulk action submits chunk after chunk until nothing is left or the user leaves the page.
document.querySelector("form[data-continue]")?.requestSubmit();

// Line numbers of the YAML editor, and links to a line.
for (const frame of document.querySelectorAll("[data-code]")) {
  const area = frame.querySelector("textarea");
  const gutter = document.createElement("pre");
  gutter.setAttribute("aria-hidden", "true");
  frame.prepend(gutter);
  const number = () => {
    gutter.textContent = Array.from(area.value.split("\n"), (_, at) => at + 1).join("\n");
    gutter.scrollTop = area.scrollTop;
  };
  area.addEventListener("input", number);
  area.addEventListener("scroll", () => { gutter.scrollTop = area.scrollTop; });
  number();
}
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-line]");
  if (!link) return;
  event.preventDefault();
  const area = document.querySelector("[data-code] textarea");
  const lines = area.value.split("\n").slice(0, Number(link.dataset.line) - 1);
  const at = lines.reduce((sum, line) => sum + line.length + 1, 0) + Number(link.dataset.column) - 1;
  area.focus();
  area.setSelectionRange(at, at);
});
