// One stream per page. What it brings are fragments made by the server, with everything escaped: each takes the
// place of the element with its id, and rows that are new go on top of the feed.
const path = document.body.dataset.stream;
const button = document.getElementById("live");
const word = document.getElementById("live-word");
const AGAIN_MS = 3000;
let source = null;
let place = null;
let held = false;
let ended = false;

function show(state, text) {
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(state !== "held"));
  word.textContent = text;
}

// Somebody types into it, or has opened a question in it: it stays as it is until they are done.
function inUse(old) {
  const field = document.activeElement?.closest("input, textarea, select");
  return (field && old.contains(field)) || old.querySelector("details.confirm[open]");
}

function replace(old, fresh) {
  const href = old.contains(document.activeElement) && document.activeElement.getAttribute("href");
  old.replaceWith(fresh);
  if (href) [...fresh.querySelectorAll("a")].find((a) => a.getAttribute("href") === href)?.focus();
}

function receive(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const feed = document.querySelector("[data-feed]");
  for (const fresh of [...template.content.children]) {
    // Written before it is compared: a row that only repeats what is there stays untouched.
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
  // Ids begin with the instant of the fire, so their order is the order of the table.
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
    if (source?.readyState === EventSource.CLOSED) comeBack();
  };
}

// The browser tries again by itself after a break, but not after an answer such as "not available right now".
async function comeBack() {
  const tried = source;
  const answer = await fetch("/static/style.css", { cache: "no-store" }).catch(() => null);
  if (answer?.status === 401) return show("away", "Signed out");
  setTimeout(() => { if (source === tried) open(); }, AGAIN_MS);
}

function close() {
  source?.close();
  source = null;
}

if (path) {
  button.hidden = false;
  button.addEventListener("click", () => {
    held = Boolean(source);
    if (held) {
      close();
      show("held", "Held");
    } else {
      open();
    }
  });
  // Browsers allow few connections per server: a tab nobody sees gives its own back. Coming back tells it all again.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!held && !ended && !source) open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && !held && !ended && !source && open());
  open();
}
document.documentElement.classList.add("scripted");
