// Draws rates over time, a ledger's fragments on its bookies, and a log's ledgers in a row.
"use strict";

const width = () => {
  const main = document.getElementById("main").clientWidth;
  return Math.max(260, main - (window.innerWidth <= 560 ? 26 : 34));
};

// The smallest round number at or above the value whose half is round too.
function ceiling(value, step) {
  let base = 1;
  while (base * step <= value) base *= step;
  return (step === 1000 ? [1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 800, 1000] : [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 768, 1024])
    .map((times) => times * base).find((round) => round >= value);
}

// One polyline for each stretch without a gap.
function stretches(points) {
  const found = [[]];
  for (const point of points) {
    if (point[1] === null) found.push([]);
    else found[found.length - 1].push(point);
  }
  return found.filter((stretch) => stretch.length > 1);
}

// Draws two rates over the last five minutes. `history` holds rows [seconds ago, values …].
function rates(title, history, [first, second], format, step) {
  const two = window.innerWidth > 960;
  const [wide, high, left] = [two ? (width() - 48) / 2 : width(), 150, 64];
  const seen = history.flatMap((row) => [row[first.column], row[second.column]]).filter((value) => value !== null);
  const top = ceiling(Math.max(1, ...seen), step);
  const x = (age) => left + (wide - left) * (1 - Math.min(age, 300) / 300);
  const y = (value) => 8 + (high - 30) * (1 - value / top);
  const points = (column) => history.map((row) => [x(row[0]), row[column] === null ? null : y(row[column])]);
  const text = (stretch) => stretch.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
  const last = history.length ? history[history.length - 1] : [];
  const now = (one) => `${format(last[one.column])}/s`;
  const key = (one, kind) => h("span", null,
    s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, s("path", { class: kind, d: "M0 4h22" })),
    one.name, " ", h("b", { id: one.id }, now(one)));
  const grid = [0, 0.5, 1].map((share) => [
    s("line", { class: "axis", x1: left, x2: wide, y1: y(top * share), y2: y(top * share) }),
    s("text", { x: left - 8, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share).replace(/\.0+(?= |$)/, ""))]);
  const ages = [[300, "5 min ago", "start"], [150, "2½ min", "middle"], [0, "now", "end"]].map(([age, name, anchor]) =>
    s("text", { x: x(age), y: high - 4, "text-anchor": anchor }, name));
  const area = stretches(points(first.column)).map((stretch) =>
    s("polygon", { class: "area1", points: `${stretch[0][0]},${y(0)} ${text(stretch)} ${stretch[stretch.length - 1][0]},${y(0)}` }));
  const lines = [[first, "line1"], [second, "line2"]].flatMap(([one, kind]) =>
    stretches(points(one.column)).map((stretch) => s("polyline", { class: kind, points: text(stretch) })));
  return card(
    h("h2", null, title),
    h("p", { class: "legend" }, key(first, "line1"), key(second, "line2")),
    s("svg", { class: "chart", role: "img", viewBox: `0 0 ${wide} ${high}`, height: high,
      "aria-label": `${title}, the last five minutes: ${first.name} ${now(first)}, ${second.name} ${now(second)} now` },
      grid, ages, area, lines));
}

// Draws how many ledgers were under-replicated: a bar for each step of some minutes, nothing where it is not known.
function markBars(marks) {
  const hours = [1, 6].find((one) => marks.known_s <= one * 3600) || 24;
  const steps = (hours * 3600) / marks.step_s;
  const [wide, high, left] = [width(), 116, 44];
  const rows = marks.rows.filter(([ago]) => ago < steps);
  const top = Math.max(2, ceiling(Math.max(1, ...rows.map((row) => row[1])), 1000));
  const step = (wide - left) / steps;
  const y = (value) => 8 + (high - 30) * (1 - value / top);
  const grid = [0, 0.5, 1].map((share) => [
    s("line", { class: "axis", x1: left, x2: wide, y1: y(top * share), y2: y(top * share) }),
    s("text", { x: left - 8, y: y(top * share) + 4, "text-anchor": "end" }, short(top * share))]);
  const ages = [[0, `${hours} h ago`, "start"], [0.5, `${hours * 30 >= 60 ? `${hours / 2} h` : "30 min"}`, "middle"], [1, "now", "end"]].map(([share, name, anchor]) =>
    s("text", { x: left + (wide - left) * share, y: high - 4, "text-anchor": anchor }, name));
  const bars = rows.map(([ago, count, areAll]) => {
    const from = y(Math.max(count, top / (areAll ? 60 : 20)));
    return s("rect", { class: count ? "marks" : areAll ? "marks none" : "marks unknown", x: wide - (ago + 1) * step, y: from, width: Math.max(1, step - 1), height: y(0) - from });
  });
  const most = rows.reduce((sum, row) => Math.max(sum, row[1]), 0);
  const unknown = rows.filter((row) => !row[2]).length;
  return s("svg", { class: "chart", id: "marks-history", role: "img", viewBox: `0 0 ${wide} ${high}`, height: high,
    "aria-label": `Under-replicated ledgers in the last ${hours} h: at most ${most} marked; looked at for ${span(marks.known_s)}` +
    (unknown ? `; for ${span(unknown * marks.step_s)} of that nobody knows whether all were marked` : "") }, grid, ages, bars);
}

const PATTERNS = () => s("defs", null,
  s("pattern", { id: "stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    s("rect", { class: "stripe1", width: 4, height: 6 }), s("rect", { class: "stripe2", x: 4, width: 2, height: 6 })),
  s("pattern", { id: "gone", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" },
    s("rect", { class: "gone1", width: 7, height: 7 }), s("rect", { class: "gone2", width: 1.5, height: 7 })));

// Each fragment's place on the axis: as wide as its number of entries, but wide enough to be seen.
function places(ledger, wide) {
  const end = (one) => (one.last === null ? Math.max(one.first + 1, Math.round(one.first * 1.2)) : one.last + 1);
  const sizes = ledger.drawn.map((one) => Math.max(0, end(one) - one.first));
  const total = Math.max(1, sizes.reduce((a, b) => a + b, 0));
  const least = Math.min(14, wide / sizes.length);
  const raw = sizes.map((size) => Math.max(least, (wide * size) / total));
  const shrink = wide / Math.max(1, raw.reduce((a, b) => a + b, 0));
  let at = 0;
  return raw.map((size) => {
    const place = { x: at, w: size * shrink };
    at += place.w;
    return place;
  });
}

// Draws a ledger: entries from left to right, a row for each bookie, a box for what a bookie holds of a fragment.
function fragments(ledger) {
  const narrow = window.innerWidth <= 560;
  const [wide, left, step, top] = [width(), narrow ? 128 : 250, 30, 6];
  const rows = new Map();
  ledger.drawn.forEach((one) => one.ensemble.forEach((bookie) => rows.has(bookie) || rows.set(bookie, rows.size)));
  const modes = new Map(ledger.bookies.map((one) => [one.id, one.mode]));
  const bottom = top + rows.size * step;
  const spots = places(ledger, wide - left);
  const striped = ledger.ensemble_size > ledger.write_quorum;
  const most = narrow ? 15 : 31;
  const cuts = [...rows.keys()].map((bookie) => shown(bookie, most, false));
  const cut = (bookie, row) => (cuts.indexOf(cuts[row]) === cuts.lastIndexOf(cuts[row]) ? cuts[row] : shown(bookie, most - 8));
  const labels = [...rows].map(([bookie, row]) => {
    const lost = modes.get(bookie) === "lost";
    return s("text", { class: lost ? "row-label lost" : "row-label", x: 0, y: top + row * step + 19 },
      s("title", null, `${whole(bookie)}: ${modes.get(bookie)}`), `${lost ? "✕ " : modes.get(bookie) === "read-only" ? "◐ " : ""}${cut(bookie, row)}`);
  });
  const boxes = ledger.drawn.flatMap((one, place) => one.ensemble.map((bookie) => {
    const lost = modes.get(bookie) === "lost";
    const kind = ["fragment", striped && "striped", one.last === null && "is-open", lost && "is-lost"].filter(Boolean).join(" ");
    const range = one.last === null ? `entries from ${one.first} on` : one.last < one.first ? "no entry" : `entries ${one.first} to ${one.last}`;
    const held = striped ? `, ${ledger.write_quorum} of every ${ledger.ensemble_size} of them` : "";
    return s("rect", { class: kind, id: `fragment-${one.first}-${rows.get(bookie)}`, "data-first": one.first, "data-bookie": bookie,
      x: left + spots[place].x + 1, y: top + rows.get(bookie) * step + 3, width: Math.max(1, spots[place].w - 2), height: step - 6, rx: 3 },
      s("title", null, `${range}${held}: ${whole(bookie)}${lost ? " (lost)" : ""}`));
  }));
  const grid = [...rows.values()].map((row) =>
    s("line", { class: "axis", x1: left, x2: wide, y1: top + row * step + step / 2, y2: top + row * step + step / 2 }));
  let free = -1;
  const ticks = ledger.drawn.map((one, place) => {
    const at = left + spots[place].x;
    const label = number(one.first);
    if (at < free || at + label.length * 7 > wide - 46) return null;
    free = at + label.length * 7 + 16;
    return [s("line", { class: "axis", x1: at, x2: at, y1: top, y2: bottom + 4 }), s("text", { x: at, y: bottom + 18 }, label)];
  });
  const end = ledger.last_entry_id === null ? "open …" : number(ledger.last_entry_id);
  return s("svg", { class: "drawn", id: "fragments", role: "img", viewBox: `0 0 ${wide} ${bottom + 24}`, height: bottom + 24,
    "aria-label": `Ledger ${ledger.id} drawn: ${ledger.drawn.length} fragments on ${rows.size} bookies; the table below says the same` },
    PATTERNS(), grid, ticks, labels, boxes, s("text", { x: wide, y: bottom + 18, "text-anchor": "end" }, end));
}

function fragmentKey(ledger) {
  const sign = (kind, text) => h("span", null,
    s("svg", { viewBox: "0 0 20 12", "aria-hidden": "true" }, s("rect", { class: `fragment ${kind}`, x: 1, y: 1, width: 18, height: 10, rx: 2 })), text);
  const striped = ledger.ensemble_size > ledger.write_quorum;
  const lost = ledger.bookies.some((one) => one.mode === "lost");
  return h("p", { class: "key" },
    striped ? sign("striped", `holds ${ledger.write_quorum} of every ${ledger.ensemble_size} entries`) : sign("", "holds every entry"),
    lost && sign("is-lost", "✕ on a lost bookie: these copies cannot be read now"),
    ledger.last_entry_id === null && sign("is-open", "still written: the end is not known"));
}

// Draws a log: its ledgers in log order, as wide as they are large, over several lines if need be.
function ledgerRow(log) {
  const wide = width();
  const total = Math.max(1, log.drawn.reduce((sum, one) => sum + one.bytes, 0));
  const all = [...log.drawn, ...log.drawn_open.map((one) => ({ ...one, open: true, bytes: total / Math.max(1, log.drawn.length) }))];
  const lines = Math.max(1, Math.ceil((all.length * 22) / wide));
  const scale = (wide * lines * 0.96) / (total + log.drawn_open.length * (total / Math.max(1, log.drawn.length)));
  const [step, box] = [38, 26];
  let [x, line] = [0, 0];
  const spots = new Map();
  const boxes = all.map((one) => {
    const w = Math.min(wide, Math.max(5, one.bytes * scale));
    if (x > 0 && x + w > wide + 1) [x, line] = [0, line + 1];
    spots.set(one.id, { x, w, line });
    const says = one.open ? `ledger ${one.id}: open, its end is not recorded` : `ledger ${one.id}: ${count(one.rows)} rows, ${bytes(one.bytes)}`;
    const drawn = s("a", { href: `#/ledger/${encodeURIComponent(one.id)}`, tabindex: -1 },
      s("rect", { class: one.open ? "ledger is-open" : "ledger", "data-ledger": one.id, x: x + 0.5, y: line * step, width: Math.max(3, w - 2), height: box, rx: 3 },
        s("title", null, says)),
      w > one.id.length * 8 + 10 && s("text", { class: one.open ? "" : "on", x: x + w / 2, y: line * step + 17, "text-anchor": "middle" }, one.id));
    x += w;
    return drawn;
  });
  const marks = log.streams.filter((one) => one.ledger_id !== null && spots.has(one.ledger_id)).map((one) => {
    const at = spots.get(one.ledger_id);
    const entries = (log.drawn.find((ledger) => ledger.id === one.ledger_id) || {}).entries;
    const centre = at.x + at.w * (entries ? Math.min(1, one.entry_id / entries) : 0.5);
    const y = at.line * step + box + 1;
    return s("path", { class: "stream", "data-stream": one.name, d: `M${centre - 5} ${y + 8}h10l-5 -8z` }, s("title", null, `the stream ${whole(one.name)} reads here`));
  });
  const high = (line + 1) * step + 2;
  return s("svg", { class: "drawn", id: "ledgers", role: "img", viewBox: `0 0 ${wide} ${high}`, height: high,
    "aria-label": `The last ${all.length} ledgers of the log in their order, as wide as they are large` }, boxes, marks);
}
