// The event stream of a page. It brings fragments that the server has rendered and escaped: each replaces the element
// with its id, and new rows are inserted into the feed.
const path = document.body.dataset.stream;
const button = document.getElementById("live");
const word = document.getElementById("live-word");
const RECONNECT_MS = 3000;
let source = null;
let place = null;
let paused = false;
let ended = false;

function show(state, text) {
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(state !== "paused"));
  word.textContent = text;
}

// An element is not replaced while a field in it has focus or a confirmation in it is open.
function inUse(old) {
  const field = document.activeElement?.closest("input, textarea, select");
  return (field && old.contains(field)) || old.querySelector("details.confirm[open]");
}

function replace(old, fresh) {
  const href = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
  for (const part of old.querySelectorAll("details[id][open]")) {
    const same = [...fresh.querySelectorAll("details[id]")].find((one) => one.id === part.id);
    if (same) same.open = true;
  }
  old.replaceWith(fresh);
  if (href) [...fresh.querySelectorAll("a")].find((a) => a.getAttribute("href") === href)?.focus();
}

function receive(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const feed = document.querySelector("[data-feed]");
  for (const fresh of [...template.content.children]) {
    // Times are written before the comparison, so that an unchanged row stays untouched.
    document.dispatchEvent(new CustomEvent("mainspring:new", { detail: fresh }));
    const old = document.getElementById(fresh.id);
    if (old) {
      if (!old.isEqualNode(fresh) && !inUse(old)) replace(old, fresh);
    } else if (feed && fresh.matches("tr") && !("known" in fresh.dataset)) {
      fresh.classList.add("new");
      insert(feed, fresh);
      for (const hint of document.querySelectorAll("[data-when-empty]")) hint.remove();
    }
  }
  while (feed && feed.rows.length > Number(feed.dataset.feed)) feed.rows[feed.rows.length - 1].remove();
}

function insert(feed, fresh) {
  // Ids start with the fire time, so their order is the order of the table.
  const after = [...feed.rows].find((row) => row.id < fresh.id);
  feed.insertBefore(fresh, after ?? null);
}

function open() {
  const url = new URL(path, location.href);
  if (place) url.searchParams.set("place", place);
  source = new EventSource(url);
  source.onopen = () => show("live", "Live");
  source.onmessage = (event) => receive(event.data);
  source.addEventListener("log", (event) => {
    place = event.lastEventId;
    document.dispatchEvent(new CustomEvent("mainspring:log", { detail: event.data }));
  });
  source.addEventListener("end", () => {
    ended = true;
    close();
    button.hidden = true;
  });
  source.onerror = () => {
    show("away", "Reconnecting");
    if (source?.readyState === EventSource.CLOSED) reconnect();
  };
}

// EventSource reconnects after a lost connection, but not after an error status such as 503.
async function reconnect() {
  const tried = source;
  const answer = await fetch("/static/style.css", { cache: "no-store" }).catch(() => null);
  if (answer?.status === 401) return show("away", "Signed out");
  setTimeout(() => { if (source === tried) open(); }, RECONNECT_MS);
}

function close() {
  source?.close();
  source = null;
}

if (path) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = Boolean(source);
    if (paused) {
      close();
      show("paused", "Paused");
    } else {
      open();
    }
  });
  // Browsers allow few connections per server: a hidden tab closes its stream. A new stream sends everything again.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!paused && !ended && !source) open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && !paused && !ended && !source && open());
  open();
}
document.documentElement.classList.add("scripted");
