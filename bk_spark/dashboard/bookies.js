// The table of bookies, and the page of one bookie with what an operator should do about it.
"use strict";

const when = (ms) => known(ms || null, (v) => h("span", { title: time(v) }, `${time(v)} (${ago(v)})`));

// A registration's end is not recorded: the store tells what came before it and after it.
function lostSince(row) {
  if (row.last_seen_ms) return h("span", { title: time(row.last_seen_ms) }, `last seen ${ago(row.last_seen_ms)}`);
  if (row.marked_ms) return h("span", { title: time(row.marked_ms) }, `lost for at least ${span((Date.now() - row.marked_ms) / 1000)}`);
  return "since when is not known";
}

function bookieState(row) {
  const signs = [mode(row.mode)];
  if (row.failed) signs.push(badge("bad", "▲ failed"));
  if (row.lapsed) signs.push(badge("warn", "▲ lapsed"));
  if (row.limbo) signs.push(badge("warn", "◑ limbo"));
  if (row.problem) signs.push(badge("bad", `? silent for ${span(row.failing_s)}`));
  return signs.flatMap((sign) => [sign, " "]);
}

const isAbsent = (row) => row.mode === "lost" || row.mode === "never started";

function bookieStateCell(row) {
  const why = row.why || row.problem;
  return [bookieState(row), isAbsent(row) && h("div", { class: "why" }, row.mode === "lost" && [lostSince(row), " · "], h("a", { href: `#/bookie/${encodeURIComponent(row.id)}` }, "what to do")),
    why && !isAbsent(row) && h("div", { class: "why" }, said(why))];
}

function disk(row, whose) {
  if (!row.total_bytes) return "–";
  const free = h("small", { class: "quiet" }, `${bytes(row.free_bytes)} free`);
  return [bar(row.total_bytes - row.free_bytes, row.total_bytes, `${whose}, ${bytes(row.total_bytes)}`), h("br"), free];
}

function bookieTable(rows) {
  return table("Bookies", rows, [
    ["Bookie", (row) => bookieLink(row.id), "id"],
    ["State", bookieStateCell],
    ["Address", (row) => (row.address ? named(row.address) : "–")],
    ["Rack", (row) => (row.rack ? named(row.rack) : "–"), "rack"],
    ["Disks", (row) => disk(row, `disks of ${whole(row.id)}`), "disk"],
    ["Adds", (row) => rate(short)(row.adds_s), "n"],
    ["Reads", (row) => rate(short)(row.reads_s), "n"],
    ["Add p99", (row) => seconds(row.add_p99_s), "n"],
    ["Read p99", (row) => seconds(row.read_p99_s), "n"],
  ], "No bookie has ever joined this cluster: 'bk-spark bookie format' makes one.");
}

const bookiesView = (cluster, bookies) => [h("h1", null, "Bookies"), card(bookieTable(bookies.rows),
  quiet("Rates are those of the last seconds; an entry counts once for each of its copies. p99: what 99 of 100 requests of the last half minute took at most. ",
    "The rate of a bookie is known if it was started with --http-port."))];

function adviceCard(bookie) {
  if (!bookie.advice.length) return false;
  return h("section", { class: "card advice", id: "advice" }, h("h2", null, "What to do now"),
    h("ul", null, bookie.advice.map((one) => h("li", null, one.text, one.command && h("code", { class: "command" }, said(one.command, Infinity))))),
    quiet("The commands take --metadata, or the variable BK_SPARK_METADATA."));
}

function auditorSays(bookie) {
  if (bookie.lost_at_ms) return `waits for it until ${time(bookie.lost_at_ms)}`;
  if (bookie.is_lost === null) return "not known: no auditor tells";
  return bookie.is_lost ? "counts it as lost: its ledgers are marked, and copied" : "does not count it as lost";
}

const lostFacts = (bookie) => [
  ["Why", said(bookie.why)],
  ["Last sign of life", bookie.last_seen_ms ? [when(bookie.last_seen_ms), ": it went after that"] : "not known"],
  ["Its ledgers are marked since", bookie.marked_ms ? [when(bookie.marked_ms), ": it had gone before"] : bookie.last_seen_ms ? "none since then" : "none is marked"],
  ["Auditor", auditorSays(bookie)],
];

const liveFacts = (bookie) => [
  bookie.why || bookie.problem ? ["Why", said(bookie.why || bookie.problem)] : null,
  [bookie.mode === "writable" ? "Writable since" : "Read-only since", when(bookie.registered_ms)],
  ["Address", named(bookie.address)],
  ["Address for Apache's clients", bookie.is_apache ? "the same" : bookie.apache_address ? [named(bookie.apache_address), bookie.apache_tls && " (TLS)"] : "none"],
  ["Metrics and health", bookie.metrics_address ? [named(bookie.metrics_address), !bookie.metrics && " (no answer)"] : "none: start it with --http-port"],
  ["Rack", named(bookie.rack)],
  ["Last sign of life", bookie.cookie && bookie.cookie.boot !== null ? when(bookie.cookie.changed_ms) : "not known"],
  ["Version", bookie.version ? said(bookie.version) : "not told"],
];

const rateFacts = (bookie) => [
  ["Adds", rate(short)(bookie.adds_s)], ["Reads", rate(short)(bookie.reads_s)],
  ["Added", rate(bytes)(bookie.added_bytes_s)], ["Read", rate(bytes)(bookie.read_bytes_s)],
  ["Add p99", seconds(bookie.add_p99_s)], ["Read p99", seconds(bookie.read_p99_s)],
];

const cookieFacts = (cookie) => [
  ["Boot", cookie && cookie.boot !== null ? `${count(cookie.boot)}, epoch ${count(cookie.epoch)}` : "not known"],
  cookie ? null : ["Cookie", "none: it was removed from the cluster"],
];

function directoriesCard(bookie) {
  if (isAbsent(bookie) || !bookie.total_bytes) return false;
  const rows = (bookie.directories || []).map((one) => ({ ...one, others: (bookie.shared[one.file_system] || []).filter((id) => id !== bookie.id) }));
  return card(table("Disks", rows, [
    ["Directory", (row) => named(row.path), "id"],
    ["Space", (row) => disk(row, `the disk of ${whole(row.path)}`), "disk"],
    ["Size", (row) => (row.total_bytes ? bytes(row.total_bytes) : "not measured"), "n"],
    ["For", (row) => said(row.uses.replaceAll(" ", ", ").replaceAll("_", " ")), "wrap"],
    ["On the same disk", (row) => (row.others.length ? joined(row.others, bookieLink) : row.file_system ? "no other bookie" : "not known"), "wrap mono"],
  ], `It does not tell its directories: ${bytes(bookie.free_bytes)} free of ${bytes(bookie.total_bytes)}.`));
}

function markedCard(bookie, known) {
  const more = bookie.marked - bookie.marked_ledgers.length;
  return card(h("h2", null, "Under-replicated ledgers that lack its copies"),
    bookie.marked ? h("p", { class: "names" }, joined(bookie.marked_ledgers, (one) => link("ledger", one.id)), more > 0 && ` and ${count(more)} more`)
      : quiet("None is marked."), known.why_not && h("p", null, unknownMarks(known)),
    bookie.marks_unread > 0 && quiet(`${count(bookie.marks_unread)} further marks of the cluster were not looked at.`));
}

function namingCard(bookie, page, asked) {
  const go = (after) => `#/bookie/${encodeURIComponent(bookie.id)}${after ? `?after=${after}` : ""}`;
  return card(table("Ledgers that name it", page.rows, [
    ["Ledger", (row) => link("ledger", row.id), "id"],
    ["State", (row) => (row.problem ? [state(row.state), " ", said(row.problem)] : state(row.state))],
    ["Entries", (row) => count(row.entries), "n"], ["Size", (row) => bytes(row.bytes), "n"],
    ["Created", (row) => h("span", { title: time(row.created_ms) }, ago(row.created_ms)), "n"],
  ], "No ledger here names it."),
  h("p", { class: "pager" }, `${count(page.rows.length)} of the ${count(page.scanned)} ledgers looked at${asked.after ? ` above ${asked.after}` : ""}.`,
    asked.after && h("a", { href: go("") }, "« from the beginning"), page.next !== null && h("a", { href: go(page.next) }, "go on »")));
}

function bookieView(cluster, bookie, page, asked) {
  const lost = isAbsent(bookie);
  return [h("h1", { class: bookie.id.length > 60 && "long" }, h("span", { class: "mono" }, named(bookie.id, Infinity)), " ", bookieState(bookie)),
    adviceCard(bookie),
    card(facts([...(lost ? lostFacts(bookie) : liveFacts(bookie)), ...cookieFacts(bookie.cookie)])),
    directoriesCard(bookie),
    !lost && card(h("h2", null, "Rates"), facts(rateFacts(bookie)), !bookie.metrics && quiet("Not known: it does not serve metrics.")),
    markedCard(bookie, cluster.marks_known), namingCard(bookie, page, asked)];
}
