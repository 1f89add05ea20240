"use strict";
/* Draws what the page's JSON holds. Text reaches the page as text nodes and attributes only, never as markup. */
const { levels, interests, dots, bags } = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const percent = (share) => (share >= 0.0995 ? (100 * share).toFixed(0) : (100 * share).toFixed(1)) + " %";
const state = { level: levels[0], root: -1, chosen: 0, zoom: 1, x: 0.5, y: 0.5 };

interests.forEach((interest) => { interest.children = []; });
interests.forEach((interest, i) => { if (interest.parent >= 0) interests[interest.parent].children.push(i); });

function make(tag, attributes, ...children) {
  const svg = ["circle", "text", "title", "g"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") node.addEventListener("click", value);
    else if (name === "hue") node.style.setProperty("--hue", value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/* Width of text in the page's typeface, in units of the type size. */
const pen = document.createElement("canvas").getContext("2d");
pen.font = `100px ${getComputedStyle(document.body).fontFamily}`;
const width = (words) => pen.measureText(words).width / 100;

const path = (i) => (i < 0 ? [] : [...path(interests[i].parent), i]);
const link = (i, text = interests[i].label) => make("button", { type: "button", class: "link", click: () => choose(i) }, text);

/* One tab stop per group of shapes; arrow keys move inside it. */
function rove(group) {
  group.addEventListener("keydown", (event) => {
    const stops = [...group.querySelectorAll("[data-stop]")];
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = step && stops[stops.indexOf(event.target) + step];
    if (next) { event.preventDefault(); event.target.setAttribute("tabindex", -1); next.setAttribute("tabindex", 0); next.focus(); }
    if (group.tagName === "svg" && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); event.target.dispatchEvent(new MouseEvent("click", { bubbles: true })); }
  });
}

/* Redraw a group without losing the keyboard's place in it. */
function refill(group, nodes) {
  const focused = group.contains(document.activeElement) ? document.activeElement.dataset.stop : null;
  group.replaceChildren(...nodes);
  const stops = [...group.querySelectorAll("[data-stop]")];
  const current = stops.find((node) => node.dataset.stop === (focused ?? String(state.chosen))) ?? stops[0];
  stops.forEach((node) => node.setAttribute("tabindex", node === current ? 0 : -1));
  if (focused !== null && current) current.focus({ preventScroll: true });
}

/* ---- treemap: squarified (Bruls, Huizing and van Wijk 2000), groups inside their parent ---- */
function weigh(i) {
  const { children, level, share } = interests[i];
  return level >= state.level || !children.length ? share : children.reduce((sum, child) => sum + weigh(child), 0);
}

function squarify(members, box) {
  const items = members.map((i) => ({ i, size: weigh(i) })).filter((item) => item.size > 0).sort((a, b) => b.size - a.size);
  const scale = (box.w * box.h) / items.reduce((sum, item) => sum + item.size, 0);
  const worst = (row, side) => {
    const sum = row.reduce((total, area) => total + area, 0);
    return Math.max((side * side * Math.max(...row)) / (sum * sum), (sum * sum) / (side * side * Math.min(...row)));
  };
  const placed = [];
  let { x, y, w, h } = box;
  for (let start = 0; start < items.length;) {
    const side = Math.min(w, h), row = [items[start].size * scale];
    while (start + row.length < items.length) {
      const longer = [...row, items[start + row.length].size * scale];
      if (worst(longer, side) > worst(row, side)) break;
      row.push(longer.at(-1));
    }
    const depth = row.reduce((total, area) => total + area, 0) / side;
    let along = 0;
    row.forEach((area, k) => {
      const length = area / depth, across = w < h;
      placed.push({ i: items[start + k].i, x: across ? x + along : x, y: across ? y : y + along, w: across ? length : depth, h: across ? depth : length });
      along += length;
    });
    if (w < h) { y += depth; h -= depth; } else { x += depth; w -= depth; }
    start += row.length;
  }
  return placed;
}

function at(node, { x, y, w, h }) {
  Object.assign(node.style, { left: `${x}px`, top: `${y}px`, width: `${Math.max(w, 0)}px`, height: `${Math.max(h, 0)}px` });
  return node;
}

/* The largest type size at which no word breaks and all lines fit, and how high those are; size 0 when none does. */
function fitting(label, { w, h }) {
  const words = label.split(" ").map(width), space = width(" ");
  for (let size = Math.min(19, Math.max(11, Math.sqrt(w * h) / 8)); size >= 9; size -= 0.5) {
    const room = (w - 14) / size;
    let lines = 1, used = -space;
    for (const word of words) {
      if (used + space + word > room && used > 0) { lines += 1; used = -space; }
      used += space + word;
    }
    const height = lines * 1.15 * size;
    if (Math.max(...words) <= room && height <= h - 8) return { size, height };
  }
  return { size: 0, height: 0 };
}

function tile({ i, ...box }) {
  const { label, share, hue, level, children } = interests[i];
  const { size, height } = fitting(label, box);
  const said = `${label}, ${percent(share)} of level ${level}` + (children.length ? `, ${children.length} finer interests` : "");
  const node = make("button", { type: "button", class: "tile", hue, title: said, "aria-label": said, "data-stop": i, "aria-pressed": i === state.chosen, click: () => choose(i) });
  if (size) {
    node.style.fontSize = `${size}px`;
    node.append(make("span", {}, label));
    if (height + size <= box.h - 8) node.append(make("small", {}, percent(share)));
  }
  return at(node, box);
}

function blocks(members, box, depth) {
  return squarify(members, box).flatMap((place) => {
    const { level, children, label, hue } = interests[place.i];
    if (level >= state.level || !children.length) return [tile(place)];
    const head = depth === 0 && place.h > 56 && place.w > 60 ? 20 : 0;
    const inner = { x: place.x + 1, y: place.y + head + 1, w: place.w - 2, h: place.h - head - 2 };
    const band = make("button", { type: "button", class: "band", hue, title: `Zoom into ${label}`, "data-stop": `band ${place.i}`, click: () => enter(place.i) }, label);
    return [...(head ? [at(band, { ...place, h: head })] : []), ...blocks(children, inner, depth + 1)];
  });
}

function drawTree() {
  const box = byId("treemap");
  const roots = interests.flatMap((interest, i) => (interest.parent < 0 ? [i] : []));
  const members = state.root < 0 ? roots : interests[state.root].children;
  refill(box, blocks(members, { x: 0, y: 0, w: box.clientWidth, h: box.clientHeight }, 0));
  const trail = [make("button", { type: "button", class: "link", click: () => enter(-1) }, "All interests")];
  for (const i of path(state.root)) trail.push(" › ", make("button", { type: "button", class: "link", click: () => enter(i) }, interests[i].label));
  byId("trail").replaceChildren(...trail);
}

/* ---- map: circles of the chosen level, names of broader ones, products as dots ---- */
function drawMap() {
  const map = byId("map"), w = map.clientWidth, h = map.clientHeight, margin = 44;
  const px = (x) => w / 2 + (x - state.x) * (w - 2 * margin) * state.zoom;
  const py = (y) => h / 2 + (y - state.y) * (h - 2 * margin) * state.zoom;
  const family = state.root < 0 ? null : new Set([...path(state.root), ...within(state.root)]);
  const nodes = dots.map(([x, y, coarse, title]) => make("circle", { class: "dot", hue: interests[coarse].hue, cx: px(x), cy: py(y), r: 2.2 }, make("title", {}, title)));
  const shown = interests.map((interest, i) => ({ ...interest, i })).filter(({ level }) => level === state.level);
  const largest = Math.max(...shown.map(({ share }) => share));
  const largestRadius = Math.min(w / 28, shown.length > 200 ? 9 : 22);
  for (const interest of shown) {
    const { i, x, y, share, hue, label, level } = interest;
    const r = 4 + largestRadius * Math.sqrt(share / largest);
    interest.radius = r;
    const faded = family && !family.has(i) ? " faded" : "";
    nodes.push(make("circle", { class: "interest" + faded, hue, cx: px(x), cy: py(y), r, role: "button", "data-stop": i, "aria-pressed": i === state.chosen, "aria-label": `${label}, ${percent(share)} of level ${level}`, click: () => choose(i) }, make("title", {}, `${label} (${percent(share)})`)));
  }
  refill(map, [...nodes, ...names(shown, px, py, w, h)]);
}

/* Names where they fit: the chosen interest first, then broad ones, then by weight. */
function names(shown, px, py, w, h) {
  const broad = state.level > levels[0] ? interests.flatMap((interest, i) => (interest.level === levels[0] ? [{ ...interest, i, broad: true }] : [])) : [];
  const order = [...shown.filter(({ i }) => i === state.chosen), ...broad, ...shown.filter(({ i }) => i !== state.chosen)];
  const taken = [], nodes = [];
  for (const { label, x, y, hue, radius, broad: isBroad } of order) {
    const short = label.length > 28 ? label.slice(0, 27) + "…" : label;
    const half = width(short) * (isBroad ? 7.4 : 6) + 4, cx = px(x), cy = py(y) + (isBroad ? 4 : radius + 12);
    const clear = cx - half > 0 && cx + half < w && cy > 12 && cy < h - 4 && !taken.some((t) => Math.abs(t.cx - cx) < t.half + half && Math.abs(t.cy - cy) < 15);
    if (!clear) continue;
    taken.push({ cx, cy, half });
    nodes.push(make("text", { x: cx, y: cy, hue, class: isBroad ? "broad" : "name", "aria-hidden": true }, short));
  }
  return nodes;
}

const within = (i) => interests[i].children.flatMap((child) => [child, ...within(child)]);

function zoom(factor) {
  state.zoom = Math.max(1, Math.min(24, state.zoom * factor));
  if (state.zoom === 1) state.x = state.y = 0.5;
  drawMap();
}

function dragging(map) {
  let from = null;
  map.addEventListener("pointerdown", (event) => { from = { x: event.clientX, y: event.clientY, state: { ...state } }; });
  window.addEventListener("pointerup", () => { from = null; });
  window.addEventListener("pointermove", (event) => {
    if (!from || from.state.zoom === 1) return;
    state.x = from.state.x - (event.clientX - from.x) / (map.clientWidth - 88) / state.zoom;
    state.y = from.state.y - (event.clientY - from.y) / (map.clientHeight - 88) / state.zoom;
    drawMap();
  });
}

/* ---- panel ---- */
function listed(heading, rows) {
  return rows.length ? [make("h4", {}, heading), make("ul", {}, ...rows.map((row) => make("li", {}, ...row)))] : [];
}

function drawPanel() {
  const i = state.chosen, { label, level, share, terms, products, near, flows, next, hue, id, children } = interests[i];
  const parents = path(i).slice(0, -1).flatMap((parent) => [link(parent), " › "]);
  const panel = byId("panel");
  panel.style.setProperty("--hue", hue);
  panel.replaceChildren(
    make("small", {}, `Level ${level} interest · ${id}`),
    make("h3", {}, label),
    make("p", { class: "mass" }, `${percent(share)} of all meaning at level ${level}`),
    ...(parents.length ? [make("h4", {}, "Part of"), make("p", { class: "mass" }, ...parents, label)] : []),
    ...(terms.length ? [make("h4", {}, "Words that set it apart"), make("div", { class: "chips" }, ...terms.map((term) => make("span", {}, term)))] : []),
    ...listed("Typical products", products.map((title) => [make("span", {}, title)])),
    ...listed("Nearest interests (cosine, 1 = same)", near.map(([other, cosine]) => [link(other), make("small", {}, cosine.toFixed(2))])),
    ...listed("Often met together with", flows.map((other) => [link(other)])),
    ...listed("Often followed by", next.map((other) => [link(other)])),
    ...(children.length ? [make("button", { type: "button", class: "action", click: () => enter(i) }, `Zoom into its ${children.length} finer interests`)] : []),
  );
}

/* ---- what a person can do ---- */
function choose(i) {
  state.chosen = i;
  if (interests[i].level !== state.level) state.level = interests[i].level;
  if (state.root >= 0 && !within(state.root).includes(i)) state.root = -1;
  draw();
}

function enter(i) {
  state.root = i;
  if (i >= 0) { state.chosen = i; state.level = Math.max(state.level, interests[interests[i].children[0]].level); }
  draw();
}

function setLevel(level) {
  state.level = level;
  if (state.root >= 0 && interests[state.root].level >= level) state.root = -1;
  const chosen = path(state.chosen).find((i) => interests[i].level === level) ?? interests.findIndex((interest) => interest.level === level);
  state.chosen = chosen;
  draw();
}

function draw() {
  for (const button of byId("levels").children) button.setAttribute("aria-pressed", Number(button.dataset.level) === state.level);
  drawTree();
  drawMap();
  drawPanel();
}

/* ---- bags of meaning ---- */
function bar(name, weight, attributes) {
  const row = make("li", { class: "bar", ...attributes }, name, make("b", {}, percent(weight)), make("i", { "aria-hidden": true }));
  row.style.setProperty("--width", `${(100 * weight).toFixed(1)}%`);
  return row;
}

function bagColumns(entity) {
  return entity.bag.levels.map(({ level, residual, tokens }) => make("div", {},
    make("h4", {}, levels.length < 2 ? "Interests" : `Level ${level}` + (level === levels[0] ? ", broad" : level === levels.at(-1) ? ", fine" : "")),
    make("ul", {}, ...tokens.map(([i, weight]) => bar(link(i), weight, { hue: interests[i].hue })), bar("residual: other interests", residual, { class: "bar residual" }))));
}

function drawBag(article, entity) {
  const columns = bagColumns(entity);
  if (entity.events) {
    columns.push(make("div", {}, make("h4", {}, entity.events.heading), make("ul", { class: "events" }, ...entity.events.rows.map(([day, title, times]) =>
      make("li", day ? {} : { class: "plain" }, make("time", {}, day), make("span", {}, title), make("small", {}, times > 1 ? `× ${times}` : ""))))));
  }
  article.querySelector(".bag-body").replaceChildren(
    make("p", { class: "who" }, entity.name),
    make("div", { class: "chips" }, ...entity.facts.map((fact) => make("span", {}, fact))),
    make("p", {}, entity.bag.sentence),
    make("div", { class: "columns" }, ...columns));
}

for (const article of document.querySelectorAll(".bag")) {
  const entities = bags[article.dataset.kind], select = article.querySelector("select");
  select.append(...entities.map((entity, n) => make("option", { value: n }, entity.option)));
  select.addEventListener("change", () => drawBag(article, entities[select.value]));
  if (entities.length) drawBag(article, entities[0]);
}

for (const level of levels) {
  const count = interests.filter((interest) => interest.level === level).length;
  byId("levels").append(make("button", { type: "button", "data-level": level, click: () => setLevel(level) }, `Level ${level} · ${count.toLocaleString("en")}`));
}
byId("find-list").append(...interests.map(({ label }) => make("option", { value: label })));
byId("find").addEventListener("change", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  const found = interests.findIndex(({ label }) => label.toLowerCase() === wanted);
  const part = found >= 0 ? found : interests.findIndex(({ label }) => wanted && label.toLowerCase().includes(wanted));
  if (part >= 0) choose(part);
});
byId("zoom-in").addEventListener("click", () => zoom(1.6));
byId("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
byId("zoom-reset").addEventListener("click", () => zoom(0));
document.querySelector("#bags").addEventListener("click", (event) => {
  if (event.target.closest(".bar .link")) byId("interests").scrollIntoView();
});
rove(byId("treemap"));
rove(byId("map"));
dragging(byId("map"));
new ResizeObserver(() => { drawTree(); drawMap(); }).observe(byId("treemap"));
draw();
