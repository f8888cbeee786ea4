// The graph of a workflow: layout with dagre if it is installed, zoom, drag, and follow running steps.
// The server draws boxes and edges; this script only moves them, so that the stream can replace them by id.
const ZOOM_STEP = 1.25;
const MIN_SCALE = 0.15;
const MAX_SCALE = 2.5;
const W = 184;
const H = 48;
let scale = 1;
let fitted = true;
let following = false;
let places = null;
let curves = null;
let size = null;

const picture = () => document.getElementById("picture");
const canvas = () => picture()?.querySelector(".canvas");
const graph = () => picture()?.querySelector(".graph");

function pathOf(points) {
  // A curve through the points of the layout, bent half way between them.
  const [first, ...rest] = points.map((p) => [Math.round(p.x), Math.round(p.y)]);
  let d = `M${first[0]} ${first[1]}`;
  let from = first;
  for (const to of rest) {
    const middle = Math.round((from[0] + to[0]) / 2);
    d += `C${middle} ${from[1]} ${middle} ${to[1]} ${to[0]} ${to[1]}`;
    from = to;
  }
  return d;
}

async function layOut() {
  const address = picture()?.dataset.dagre;
  if (!address) return;
  const dagre = await import(address);
  const layout = new dagre.Graph();
  layout.setGraph({ rankdir: "LR", nodesep: 16, ranksep: 52, marginx: 8, marginy: 12 });
  layout.setDefaultEdgeLabel(() => ({}));
  for (const node of graph().querySelectorAll(".node")) layout.setNode(node.id, { width: W, height: H });
  for (const edge of graph().querySelectorAll("path[data-from]")) layout.setEdge(`n-${edge.dataset.from}`, `n-${edge.dataset.to}`);
  dagre.layout(layout);
  places = new Map(layout.nodes().map((id) => [id, layout.node(id)]));
  curves = new Map(layout.edges().map((e) => {
    const from = places.get(e.v);
    const to = places.get(e.w);
    // Edges start and end in the middle of a box side, not where the layout crosses its border.
    const inner = layout.edge(e).points.slice(1, -1);
    return [`${e.v} ${e.w}`, pathOf([{ x: from.x + W / 2, y: from.y }, ...inner, { x: to.x - W / 2, y: to.y }])];
  }));
  size = layout.graph();
  place(graph());
}

function place(root) {
  if (!places) return;
  const nodes = root.matches?.(".node") ? [root] : root.querySelectorAll(".node");
  for (const node of nodes) {
    const at = places.get(node.id);
    if (!at) continue;
    node.setAttribute("x", Math.round(at.x - W / 2));
    node.setAttribute("y", Math.round(at.y - H / 2));
  }
  for (const edge of root.querySelectorAll("path[data-from]")) {
    const d = curves.get(`n-${edge.dataset.from} n-${edge.dataset.to}`);
    if (d) edge.setAttribute("d", d);
  }
  const drawn = root.matches?.(".graph") ? root : root.querySelector(".graph");
  drawn?.setAttribute("viewBox", `0 0 ${Math.ceil(size.width)} ${Math.ceil(size.height)}`);
}

function zoom(to, x, y) {
  const box = graph().viewBox.baseVal;
  const frame = canvas();
  const before = scale;
  const [atX, atY] = [x ?? frame.clientWidth / 2, y ?? frame.clientHeight / 2];
  scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, to));
  graph().setAttribute("width", Math.round(box.width * scale));
  graph().setAttribute("height", Math.round(box.height * scale));
  frame.scrollLeft = (frame.scrollLeft + atX) * (scale / before) - atX;
  frame.scrollTop = (frame.scrollTop + atY) * (scale / before) - atY;
}

function fit() {
  // Not larger than 100 %, and not so small that names are unreadable: then it scrolls.
  fitted = true;
  const box = graph().viewBox.baseVal;
  zoom(Math.min(1, Math.max(0.55, (canvas().clientWidth - 2) / box.width)));
}

function whole() {
  const box = graph().viewBox.baseVal;
  fitted = false;
  zoom(Math.min(1, canvas().clientWidth / box.width, canvas().clientHeight / box.height));
}

function follow() {
  if (!following) return;
  const node = graph()?.querySelector(".node.busy") ?? graph()?.querySelector(".node.retry, .node.bad");
  if (!node) return;
  const frame = canvas();
  const [x, y] = [node.x.baseVal.value * scale, node.y.baseVal.value * scale];
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  frame.scrollTo({ left: x - frame.clientWidth / 2 + (W * scale) / 2, top: y - frame.clientHeight / 2 + (H * scale) / 2, behavior: calm ? "auto" : "smooth" });
}

function press(button) {
  if (button.dataset.zoom === "in") zoom(scale * ZOOM_STEP);
  else if (button.dataset.zoom === "out") zoom(scale / ZOOM_STEP);
  else if (button.dataset.zoom === "fit") return whole();
  else if ("follow" in button.dataset) {
    following = !following;
    button.setAttribute("aria-pressed", String(following));
    return follow();
  }
  fitted = false;
}

let dragged = null;

function listen() {
  const frame = canvas();
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    fitted = false;
    const at = frame.getBoundingClientRect();
    zoom(scale * (event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP), event.clientX - at.left, event.clientY - at.top);
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return;
    dragged = { x: event.clientX, y: event.clientY, left: frame.scrollLeft, top: frame.scrollTop, far: false };
  });
  frame.addEventListener("dragstart", (event) => event.preventDefault());
  frame.addEventListener("click", (event) => {
    if (frame.dataset.dragged) event.preventDefault();
    delete frame.dataset.dragged;
  }, true);
  picture().querySelector(".handles").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) press(button);
  });
  picture().querySelector("[data-follow]")?.setAttribute("aria-pressed", String(following));
}

addEventListener("pointermove", (event) => {
  if (!dragged) return;
  const frame = canvas();
  const [x, y] = [event.clientX - dragged.x, event.clientY - dragged.y];
  if (Math.abs(x) + Math.abs(y) > 4) frame.dataset.dragged = "";
  frame.scrollLeft = dragged.left - x;
  frame.scrollTop = dragged.top - y;
});
addEventListener("pointerup", () => { dragged = null; });
addEventListener("resize", () => fitted && graph() && fit());

// Position new content by the layout before it replaces the old.
document.addEventListener("mainspring:new", (event) => {
  const fresh = event.detail;
  if (fresh.id === "picture") queueMicrotask(start);
  else if (fresh.matches(".node, #edges")) {
    place(fresh);
    queueMicrotask(follow);
  }
});

async function start() {
  if (!graph()) return;
  listen();
  await layOut().catch(() => { places = null; });
  if (fitted) fit();
  else zoom(scale);
  follow();
}
start();
