// Makes elements, and formats numbers. Data from the cluster becomes text or an attribute's value, never markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// Styles are set through the object model, because the page's security policy refuses style attributes.
function assign(element, name, value) {
  if (name === "style") element.style.cssText = value;
  else element.setAttribute(name, value);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null && value !== false) assign(element, name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// h makes an HTML element, s an SVG element.
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Change `old` into `next`, but touch only what differs: nothing flickers, and focus, selection and scrolling stay.
function morph(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return undefined;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) assign(old, name, value);
  const [before, after] = [[...old.childNodes], [...next.childNodes]];
  after.forEach((child, place) => (place < before.length ? morph(before[place], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
  return undefined;
}

const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function scaled(value, step, units) {
  let place = 0;
  while (Math.abs(value) >= step * 0.9995 && place < units.length - 1) [value, place] = [value / step, place + 1];
  const digits = place === 0 && Number.isInteger(value) ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${number(value, value === 0 ? 0 : digits)}${units[place] ? " " + units[place] : ""}`;
}

const known = (value, text) => (value === undefined || value === null ? "–" : text(value));
const count = (value) => known(value, (v) => number(v));
const short = (value) => known(value, (v) => scaled(v, 1000, ["", "k", "M", "G"]));
const bytes = (value) => known(value, (v) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]));
const seconds = (value) => known(value, (v) => (v < 1 ? `${number(v * 1000, v < 0.01 ? 1 : 0)} ms` : `${number(v, 1)} s`));

function span(value) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [unit, size] = units.find(([, least]) => value >= least) || units[3];
  return `${Math.floor(value / size)} ${unit}`;
}

const time = (ms) => known(ms || null, (v) => new Date(v).toISOString().slice(0, 19).replace("T", " ") + " UTC");
const ago = (ms) => known(ms || null, (v) => `${span(Math.max(0, (Date.now() - v) / 1000))} ago`);
const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);
// A name in the text of the page; the whole of it comes up under the pointer.
function named(name, most) {
  const text = shown(name, most);
  return h("bdi", { dir: "ltr", class: "name", title: text === String(name) ? null : whole(name) }, text);
}

const link = (view, id) => h("a", { href: `#/${view}/${encodeURIComponent(id)}` }, named(id));
const joined = (items, show) => items.map((one, place) => [place > 0 && ", ", show(one)]);
const bookieLink = (id) => link("bookie", id);
const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

const MODES = { writable: ["good", "● writable"], "read-only": ["warn", "◐ read-only"], lost: ["bad", "✕ lost"], "never started": ["", "○ never started"] };
const mode = (name) => badge(...(MODES[name] || ["", `? ${said(name)}`]));

const STATES = { OPEN: ["good", "◌ open"], IN_RECOVERY: ["warn", "↻ in recovery"], CLOSED: ["", "■ closed"] };
const state = (name) => badge(...(STATES[name] || ["bad", `▲ ${name.toLowerCase()}`]));

function bar(used, total, label) {
  const share = total ? Math.min(1, Math.max(0, used / total)) : 0;
  const text = `${label}: ${Math.round(share * 100)} % used`;
  return h("span", { class: share > 0.9 ? "bar high" : "bar", role: "img", "aria-label": text, title: text },
    h("i", { style: `width:${(share * 100).toFixed(1)}%` }));
}

// A table of rows, with columns [title, cell(row), class]. Cells of the first column are their rows' headings.
function table(caption, rows, columns, nothing) {
  if (!rows.length) return [h("h2", null, caption), h("p", { class: "quiet" }, nothing)];
  // On a narrow window rows are stacked, and each cell says its column; the roles keep them a table there.
  const cell = (row, [title, text, kind], place) =>
    place === 0 ? h("th", { scope: "row", role: "rowheader", class: kind }, text(row))
      : h("td", { role: "cell", class: kind, "data-column": title }, h("div", null, text(row)));
  return h("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": caption },
    h("table", { role: "table" },
      h("caption", null, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        columns.map(([title, , kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, title)))),
      h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, columns.map((column, place) => cell(row, column, place)))))));
}

const facts = (pairs) => h("dl", null, pairs.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
const card = (...children) => h("section", { class: "card" }, children);
