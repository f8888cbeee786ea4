// Keyboard shortcuts: / filter or search, g and a letter for a page, j and k for rows, ? for help.
let going = false;

function step(by) {
  const links = [...document.querySelectorAll("tbody td.name a, [data-step]")].filter((link) => link.offsetParent);
  if (!links.length) return;
  const here = links.indexOf(document.activeElement);
  const next = here < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, here + by));
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
}

function find() {
  const field = document.querySelector('[data-key="/"]') ?? document.querySelector("[data-search]");
  field.focus();
  field.select();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, dialog[open]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (going) {
    going = false;
    const link = [...document.querySelectorAll("[data-go]")].find((a) => a.dataset.go === event.key);
    if (link) location.assign(link.href);
  } else if (event.key === "g") {
    going = true;
    setTimeout(() => { going = false; }, 1500);
  } else if (event.key === "/") {
    event.preventDefault();
    find();
  } else if (event.key === "?") {
    document.getElementById("keys").showModal();
  } else if (event.key === "j" || event.key === "k") {
    step(event.key === "j" ? 1 : -1);
  }
});
