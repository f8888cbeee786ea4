// Keys: / to the filter, g then n j e f w p to a page, j and k along a table, Enter to open.
const PAGES = { n: "/", j: "/jobs", e: "/executions", f: "/failures", w: "/workers", p: "/playground" };
let going = false;

function step(by) {
  const links = [...document.querySelectorAll("tbody td.name a")];
  if (!links.length) return;
  const here = links.indexOf(document.activeElement);
  const next = here < 0 ? 0 : Math.min(links.length - 1, Math.max(0, here + by));
  links[next].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const filter = document.querySelector('[data-key="/"]');
  if (going) {
    going = false;
    if (PAGES[event.key]) location.assign(PAGES[event.key]);
  } else if (event.key === "g") {
    going = true;
    setTimeout(() => { going = false; }, 1500);
  } else if (event.key === "/" && filter) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "j" || event.key === "k") {
    step(event.key === "j" ? 1 : -1);
  }
});
