// One stream per page. What it brings are fragments made by the server, with everything escaped: each takes the
// place of the element with its id, and rows that are new go on top of the feed.
const path = document.body.dataset.stream;
const button = document.getElementById("live");
const word = document.getElementById("live-word");
const MOST_OUTPUT = 20000;
let source = null;
let place = null;

function show(state, text) {
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(state !== "held"));
  word.textContent = text;
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
      if (!old.isEqualNode(fresh)) replace(old, fresh);
    } else if (feed && fresh.matches("tr") && !("known" in fresh.dataset)) {
      fresh.classList.add("new");
      insert(feed, fresh);
      document.querySelector("[data-when-empty]")?.remove();
    }
  }
  while (feed && feed.rows.length > Number(feed.dataset.feed)) feed.rows[feed.rows.length - 1].remove();
}

function insert(feed, fresh) {
  // Ids begin with the instant of the fire, so their order is the order of the table.
  const after = [...feed.rows].find((row) => row.id < fresh.id);
  feed.insertBefore(fresh, after ?? null);
}

function append(html) {
  const log = document.getElementById("log");
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  log.insertAdjacentHTML("beforeend", html);
  while (log.childElementCount > MOST_OUTPUT) log.firstElementChild.remove();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function open() {
  const url = new URL(path, location.href);
  if (place) url.searchParams.set("place", place);
  source = new EventSource(url);
  source.onopen = () => show("live", "Live");
  source.onmessage = (event) => receive(event.data);
  source.addEventListener("log", (event) => {
    place = event.lastEventId;
    append(event.data);
  });
  source.addEventListener("end", () => {
    close();
    button.hidden = true;
  });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) show("away", "Not live: reload");
    else show("away", "Reconnecting");
  };
}

function close() {
  source?.close();
  source = null;
}

if (path) {
  button.hidden = false;
  button.addEventListener("click", () => {
    if (source) {
      close();
      show("held", "Held");
    } else {
      open();
    }
  });
  // A page kept for the back button holds no connection: browsers allow few of them per server.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}
const log = document.getElementById("log");
if (log && path) log.scrollTop = log.scrollHeight;
document.documentElement.classList.add("scripted");
