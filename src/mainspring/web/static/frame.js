// What surrounds every page: the theme, the dialog of keys, and what scrolls.
const root = document.documentElement;
const theme = document.getElementById("theme");
theme.value = root.dataset.theme ?? "auto";
theme.hidden = false;
theme.addEventListener("change", () => {
  if (theme.value === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
  try { localStorage.setItem("mainspring.theme", theme.value); } catch { /* private window: for this page only */ }
});

const keys = document.getElementById("keys");
const help = document.getElementById("help");
help.hidden = false;
help.addEventListener("click", () => keys.showModal());

// A box that scrolls can be reached by keyboard, as long as it does scroll.
const BOXES = ".scroll, pre, .log, .diff, .block";
const reach = (box) => {
  const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  if (scrolls) box.tabIndex = 0;
  else if (box.tabIndex === 0 && !box.hasAttribute("data-focus")) box.removeAttribute("tabindex");
};
const sizes = new ResizeObserver((seen) => seen.forEach((entry) => reach(entry.target)));
const watch = (part) => part.querySelectorAll(BOXES).forEach((box) => sizes.observe(box));
watch(document);
// What the stream brings can make a box scroll that keeps its size.
document.addEventListener("mainspring:new", () => requestAnimationFrame(() => {
  watch(document);
  document.querySelectorAll(BOXES).forEach(reach);
}));

// A heat map wider than its place shows today first.
const today = document.querySelector(".heat [aria-current]");
const map = today?.closest(".scroll");
if (map) map.scrollLeft = today.offsetLeft - today.offsetWidth;
