// Lists: selection with bulk actions, density, saved views, selects that apply at once. Without it, buttons do the same.
const PREFIX = "mainspring.list.";

function recall(name, fallback) {
  try { return JSON.parse(localStorage.getItem(PREFIX + name)) ?? fallback; } catch { return fallback; }
}

function remember(name, value) {
  try { localStorage.setItem(PREFIX + name, JSON.stringify(value)); } catch { /* private window: not stored */ }
}

for (const form of document.querySelectorAll("form[data-submit]")) {
  form.addEventListener("change", () => form.requestSubmit());
  // Empty values stay out of the address.
  form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  });
}

// Selection. The stream replaces rows; the selected ids survive it.
const picked = document.getElementById("picked");
if (picked) {
  const chosen = new Set();
  const all = document.querySelector("[data-pick-all]");
  const boxes = () => [...document.querySelectorAll('input[form="picked"]')];
  let last = null;
  const show = () => {
    const text = chosen.size === 1 ? "1 job selected" : `${chosen.size} jobs selected`;
    picked.classList.toggle("open", chosen.size > 0);
    picked.querySelector("[data-picked-count]").textContent = text;
    picked.querySelector("[data-picked-status]").textContent = chosen.size ? text : "";
    all.checked = chosen.size > 0 && chosen.size === boxes().length;
    all.indeterminate = chosen.size > 0 && !all.checked;
  };
  const pick = (box, on) => {
    box.checked = on;
    chosen[on ? "add" : "delete"](box.value);
  };
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of boxes()) pick(box, all.checked);
    show();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.matches('input[form="picked"]')) return;
    const rows = boxes();
    const here = rows.indexOf(event.target);
    const from = event.shiftKey && last ? rows.findIndex((box) => box.value === last) : here;
    for (const box of rows.slice(Math.min(from, here), Math.max(from, here) + 1)) pick(box, event.target.checked);
    last = event.target.value;
    show();
  });
  document.addEventListener("mainspring:new", (event) => {
    for (const box of event.detail.querySelectorAll?.('input[form="picked"]') ?? []) box.checked = chosen.has(box.value);
  });
  addEventListener("pageshow", () => {
    for (const box of boxes()) pick(box, box.checked);
    show();
  });
  show();
}

// Density.
const switcher = document.querySelector("[data-density]");
const table = document.querySelector("[data-density-of]");
if (switcher && table) {
  const apply = (compact) => {
    table.classList.toggle("compact", compact);
    switcher.setAttribute("aria-pressed", String(compact));
  };
  apply(recall("compact", false));
  switcher.hidden = false;
  switcher.addEventListener("click", () => {
    const compact = !table.classList.contains("compact");
    remember("compact", compact);
    apply(compact);
  });
}

// Saved views: names for addresses of this list, kept in this browser.
const shelf = document.querySelector("[data-saved-views]");
const save = document.querySelector("[data-save-view]");
if (shelf && save) {
  const name = `views.${shelf.dataset.savedViews}`;
  const here = () => new URLSearchParams([...new URLSearchParams(location.search)].filter(([key]) => key !== "cursor")).toString();
  const draw = () => {
    const views = recall(name, []);
    shelf.hidden = !views.length;
    shelf.replaceChildren(...views.flatMap((view) => {
      const link = document.createElement("a");
      link.href = `${location.pathname}?${view.query}`;
      link.textContent = view.title;
      if (view.query === here()) link.setAttribute("aria-current", "page");
      const drop = document.createElement("button");
      drop.type = "button";
      drop.className = "quiet drop";
      drop.textContent = "×";
      drop.setAttribute("aria-label", `Remove the view ${view.title}`);
      drop.addEventListener("click", () => {
        remember(name, recall(name, []).filter((one) => one.title !== view.title));
        draw();
      });
      return [link, drop];
    }));
    save.hidden = !here() || views.some((view) => view.query === here()) || views.length >= 20;
  };
  save.addEventListener("click", () => {
    const field = document.createElement("input");
    field.maxLength = 40;
    field.className = "view-title";
    field.placeholder = "Name of this view, then Enter";
    field.setAttribute("aria-label", "Name of this view");
    save.replaceWith(field);
    field.focus();
    const done = (keep) => {
      const title = field.value.trim();
      if (keep && title) remember(name, [...recall(name, []).filter((one) => one.title !== title), { title, query: here() }]);
      field.replaceWith(save);
      draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      done(event.key === "Enter");
    });
  });
  draw();
}
