// Times in the reader's zone, UTC or the job's zone, and live counters. draw/filters.py formats the same without script.
const KEY = "mainspring.zone";
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// Counters use the server's clock, because the reader's clock may be wrong.
const ahead = Date.parse(document.body.dataset.now) - Date.now();
const now = () => Date.now() + ahead;

let mode = recall() ?? "local";

function recall() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function remember(value) {
  try { localStorage.setItem(KEY, value); } catch { /* private window: not stored */ }
}

const OWN = Intl.DateTimeFormat().resolvedOptions().timeZone;
const formats = new Map();

function zoneOf(element) {
  if (mode === "job") return element.closest("[data-zone]")?.dataset.zone || OWN;
  return mode === "utc" ? "UTC" : OWN;
}

function format(zone) {
  if (!formats.has(zone)) {
    const fields = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
    try {
      formats.set(zone, new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...fields }));
    } catch { // unknown zone
      return format("UTC");
    }
  }
  return formats.get(zone);
}

function parts(ms, zone) {
  const found = Object.fromEntries(format(zone).formatToParts(ms).map((part) => [part.type, Number(part.value)]));
  return [found.year, found.month - 1, found.day, found.hour, found.minute, found.second, ((ms % 1000) + 1000) % 1000];
}

function clock(ms, millis, zone) {
  const [year, month, day, h, m, s, rest] = parts(ms, zone);
  const [thisYear, thisMonth, today] = parts(now(), zone);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(h)}:${two(m)}:${two(s)}` + (millis ? `.${String(rest).padStart(3, "0")}` : "");
  if (year === thisYear && month === thisMonth && day === today) return time;
  return `${day} ${MONTHS[month]}${year === thisYear ? "" : ` ${year}`} ${time}`;
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

function write(root, all) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(element.dateTime);
    const moving = moves(element);
    if (!moving && !all) continue;
    const text = moving ? counter(element, at) : clock(at, "millis" in element.dataset, zoneOf(element));
    if (element.textContent !== text) element.textContent = text;
  }
}

const choice = document.getElementById("zone");
choice.options[0].textContent = OWN;
choice.options[2].hidden = !document.querySelector("[data-zone]") && mode !== "job";
choice.value = mode;
choice.hidden = false;
document.getElementById("zone-word").hidden = true;
choice.addEventListener("change", () => {
  mode = choice.value;
  remember(mode);
  write(document, true);
});
document.addEventListener("mainspring:new", (event) => write(event.detail, true));
setInterval(() => write(document, false), 1000);
write(document, true);
