// The heat map: drag over hours to list their fires, and a line that keeps to the current time. The form does the same.
const heat = document.querySelector("table.heat[data-range]");
const cells = [...heat.querySelectorAll("td[data-at]")];
document.querySelector("[data-drag]").hidden = false;

let first = null;
let last = null;

const bounds = () => {
  const [from, to] = first.dataset.at <= last.dataset.at ? [first, last] : [last, first];
  return [from.dataset.at, to.dataset.to];
};

function mark() {
  const [from, to] = first ? bounds() : ["", ""];
  for (const cell of cells) cell.classList.toggle("spanned", first !== last && cell.dataset.at >= from && cell.dataset.to <= to);
}

// Fingers scroll: they have the form.
heat.addEventListener("pointerdown", (event) => {
  const cell = event.target.closest("td[data-at]");
  if (!cell || event.button !== 0 || event.pointerType === "touch") return;
  first = last = cell;
});
heat.addEventListener("dragstart", (event) => event.preventDefault());
document.addEventListener("pointermove", (event) => {
  const cell = first && document.elementFromPoint(event.clientX, event.clientY)?.closest("td[data-at]");
  if (!cell || cell === last) return;
  event.preventDefault();
  last = cell;
  mark();
});
document.addEventListener("pointerup", () => {
  if (first && first !== last) {
    const [from, to] = bounds();
    const target = new URL(heat.dataset.range, location.href);
    target.searchParams.set("from", from);
    target.searchParams.set("to", to);
    target.hash = "range";
    location.assign(target);
  }
  first = last = null;
});
document.addEventListener("pointercancel", () => {
  first = last = null;
  mark();
});
addEventListener("pageshow", mark);

// The time of the server, because the reader's clock may be wrong.
const ahead = Date.parse(document.body.dataset.now) - Date.now();
setInterval(() => {
  const line = heat.querySelector(".now-line");
  const now = Date.now() + ahead;
  const cell = cells.find((one) => Date.parse(one.dataset.at) <= now && now < Date.parse(one.dataset.to));
  if (!line || !cell) return;
  line.firstElementChild.setAttribute("y", Math.floor((now - Date.parse(cell.dataset.at)) / 60_000));
  if (line.parentElement !== cell) cell.append(line, line.nextElementSibling ?? "");
}, 20_000);
