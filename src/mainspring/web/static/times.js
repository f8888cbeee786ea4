// Live counters, and the choice of the zone. The server formats times; theme.js sends the zone.
const KEY = "mainspring.zone";

// Counters use the server's clock, because the reader's clock may be wrong.
const ahead = Date.parse(document.body.dataset.now) - Date.now();
const now = () => Date.now() + ahead;

const mode = recall() ?? "local";

function recall() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function remember(value) {
  try { localStorage.setItem(KEY, value); } catch { /* private window: not stored */ }
}

function span(ms) {
  const whole = Math.max(0, Math.round(ms / 1000));
  for (const [large, small, unit, rest] of [[86400, 3600, "d", "h"], [3600, 60, "h", "min"], [60, 1, "min", "s"]]) {
    if (whole >= large) {
      const more = Math.floor((whole % large) / small);
      return `${Math.floor(whole / large)} ${unit}` + (more ? ` ${more} ${rest}` : "");
    }
  }
  return `${whole} s`;
}

function counter(element, at) {
  const data = element.dataset;
  if ("until" in data) return at > now() ? `in ${span(Math.ceil((at - now()) / 1000) * 1000)}` : "due";
  return "ago" in data ? `${span(now() - at)} ago` : span(now() - at);
}

function moves(element) {
  return ["until", "since", "ago"].some((name) => name in element.dataset);
}

function write(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    if (!moves(element)) continue;
    const text = counter(element, Date.parse(element.dateTime));
    if (element.textContent !== text) element.textContent = text;
  }
}

const choice = document.getElementById("zone");
choice.options[0].textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
choice.value = mode === "utc" ? "utc" : "local";
choice.hidden = false;
document.getElementById("zone-word").hidden = true;
choice.addEventListener("change", () => {
  remember(choice.value);
  location.reload(); // theme.js sends the new zone
});
document.addEventListener("mainspring:new", (event) => write(event.detail));
setInterval(() => write(document), 1000);
write(document);
