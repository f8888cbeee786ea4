// Instants in the reader's zone or in UTC, and counters that move. words.py writes the same without script.
const KEY = "mainspring.zone";
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// By the server's clock: a reader's clock that is wrong must not move a countdown.
const ahead = Date.parse(document.body.dataset.now) - Date.now();
const now = () => Date.now() + ahead;

let local = recall() !== "utc";

function recall() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function remember(value) {
  try { localStorage.setItem(KEY, value); } catch { /* private window: for this page only */ }
}

function parts(ms) {
  const at = new Date(ms);
  return local
    ? [at.getFullYear(), at.getMonth(), at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds(), at.getMilliseconds()]
    : [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds(), at.getUTCMilliseconds()];
}

function clock(ms, millis) {
  const [year, month, day, h, m, s, rest] = parts(ms);
  const [thisYear, thisMonth, today] = parts(now());
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
    const text = moving ? counter(element, at) : clock(at, "millis" in element.dataset);
    if (element.textContent !== text) element.textContent = text;
  }
}

const button = document.getElementById("zone");

function label() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  document.getElementById("zone-word").textContent = "";
  button.textContent = local ? zone : "UTC";
  button.title = local ? "Times in your zone. Show them in UTC." : `Times in UTC. Show them in ${zone}.`;
  button.hidden = false;
}

button.addEventListener("click", () => {
  local = !local;
  remember(local ? "local" : "utc");
  label();
  write(document, true);
});
document.addEventListener("mainspring:new", (event) => write(event.detail, true));
setInterval(() => write(document, false), 1000);
label();
write(document, true);
