// The frame of every page: theme, keyboard shortcuts dialog, and focusable scroll boxes.
const root = document.documentElement;
const theme = document.getElementById("theme");
theme.value = root.dataset.theme ?? "auto";
theme.hidden = false;
theme.addEventListener("change", () => {
  if (theme.value === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
  try { localStorage.setItem("mainspring.theme", theme.value); } catch { /* private window: not stored */ }
});

const keys = document.getElementById("keys");
const help = document.getElementById("help");
help.hidden = false;
help.addEventListener("click", () => keys.showModal());

// A box is focusable while it scrolls, so that it can be scrolled by keyboard.
const BOXES = ".scroll, pre:not([aria-hidden]), .log, .diff, .block";
const setFocusable = (box) => {
  const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  if (scrolls) box.tabIndex = 0;
  else if (box.tabIndex === 0 && !box.hasAttribute("data-focus")) box.removeAttribute("tabindex");
};
const sizes = new ResizeObserver((seen) => seen.forEach((entry) => setFocusable(entry.target)));
const watch = (part) => part.querySelectorAll(BOXES).forEach((box) => sizes.observe(box));
watch(document);
// New content can make a box scroll without changing its size.
document.addEventListener("mainspring:new", () => requestAnimationFrame(() => {
  watch(document);
  document.querySelectorAll(BOXES).forEach(setFocusable);
}));

// A heat map that is wider than the page starts at today.
const today = document.querySelector(".heat [aria-current]");
const map = today?.closest(".scroll");
if (map) map.scrollLeft = today.offsetLeft - today.offsetWidth;
