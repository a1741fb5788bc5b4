// One function for each view. It makes the elements from the server's answers.
"use strict";

const ID = (row) => h("span", { class: "mono" }, named(row.id));
const rate = (format) => (value) => known(value, (v) => `${format(v)}/s`);
const quiet = (...text) => h("p", { class: "quiet" }, ...text);

// The figures of a log count what is closed: an open ledger has more, and how much only its bookies know.
function grown(log, figure, format) {
  if (!log.open) return format(figure);
  return h("span", { title: "A ledger that is open counts once it is closed." }, figure ? `at least ${format(figure)}` : "not known: open");
}

// Marks are all that lacks copies only where an auditor has looked.
const unknownMarks = (known) => badge("warn", `? not known: ${said(known.why_not)}`);
const audited = (known) => (known.audited_ms ? h("span", { title: time(known.audited_ms) }, `audited ${ago(known.audited_ms)}`) : false);

function marksTile(value) {
  const { under_replicated: marked, marks_known: known } = value;
  const figure = known.why_not ? (marked ? ["at least ", count(marked)] : "not known") : count(marked);
  return tile("Under-replicated ledgers", figure,
    marked > 0 && h("a", { href: "#/underreplicated" }, "which, and since when"),
    known.why_not ? unknownMarks(known) : !marked && badge("good", "● none lacks a copy"), audited(known));
}

// A tier that is behind costs nothing yet: bookies keep what waits, and so their disks fill.
function tierSign(tier) {
  if (!tier) return "none";
  if (tier.problem) return badge("bad", "? not known");
  if (tier.behind) return badge("warn", `▲ ${span(Math.max(0, (Date.now() - tier.since_ms) / 1000))} behind`);
  return badge("good", "● in time");
}

const part = (of) => `${plural(of.rows, "row")}, ${bytes(of.bytes)} of ${plural(of.ledgers, "ledger")}`;

function tierCard(tier) {
  if (!tier) return false;
  if (tier.problem) return card(h("h2", null, "Its tier ", tierSign(tier)), h("p", { id: "tier" }, said(tier.problem)));
  return card(h("h2", null, "Its tier ", tierSign(tier)), h("div", { id: "tier" }, facts([
    ["Table", h("span", { class: "mono" }, named(tier.table, Infinity))], ["Location", h("span", { class: "mono" }, named(tier.location, Infinity))],
    ["In the table", part(tier.tiered)],
    ["Gone from bookies", tier.released.ledgers ? part(tier.released) : "nothing"],
    ["Waits", tier.waiting.ledgers ? part(tier.waiting) : "nothing that is closed"],
    ["Oldest that waits", tier.since_ms === null ? "–" : h("span", { title: time(tier.since_ms) }, ago(tier.since_ms))],
    tier.open_since_ms !== null && ["Open, tiered once it is closed", h("span", { title: time(tier.open_since_ms) }, `a ledger opened ${ago(tier.open_since_ms)}`)],
    ["Rows are tiered", `${span(tier.after_s)} after their commit`], ["Ledgers stay on bookies", `${span(tier.keep_s)} after that`],
  ])), tier.behind && quiet(`Behind: rows wait for more than ${span(tier.behind_after_s)}. See that 'bk-spark tier serve' runs, and what its log says of this log.`));
}

const LOG_COLUMNS = [
  ["Log", (row) => link("log", row.name)],
  ["Holds", (row) => row.content || "nothing yet"],
  ["Version", (row) => count(row.version), "n"],
  ["Ledgers", (row) => [count(row.ledgers + row.open), row.open ? " " : "", row.open ? badge("good", `◌ ${row.open} open`) : ""], "n"],
  ["Rows", (row) => grown(row, row.rows, count), "n"],
  ["Size", (row) => grown(row, row.bytes, bytes), "n"],
  ["Tier", (row) => tierSign(row.tier)],
  ["Last commit", (row) => h("span", { title: time(row.committed_ms) }, ago(row.committed_ms)), "n"],
];

function tile(label, figure, ...more) {
  return h("div", { class: "card tile" }, h("p", { class: "label" }, label), h("p", { class: "figure" }, figure), h("p", { class: "more" }, more));
}

const plural = (amount, one, more = `${one}s`) => `${count(amount)} ${amount === 1 ? one : more}`;

// A disk that several bookies share counts once, if they tell; otherwise it may count more than once, and the tile says so.
function disksCounted(space) {
  const told = space.bookies - space.untold;
  const disks = `${plural(space.file_systems - space.untold, "disk")} of ${plural(told, "bookie")}`;
  return h("span", { id: "disks" }, `of ${bytes(space.total_bytes)}`, told > 0 && `, on ${disks}`,
    space.untold > 0 && [" ", badge("warn", "? may count twice"), ` ${plural(space.untold, "bookie does not", "bookies do not")} tell which disk: each counts by itself`]);
}

// Figures of a bookie that does not answer count in no sum.
function uncounted(value) {
  const missing = value.writable + value.read_only - value.space.bookies;
  return missing > 0 && badge("warn", `? without ${plural(missing, "bookie")} whose disks are not known`);
}

function zooKeeper(found) {
  const since = (passed) => [h("span", { title: time(Date.now() - 1000 * passed) }, `for ${span(passed)}`)];
  const of = found.servers.length > 1 ? ` (of ${found.servers.length} servers)` : "";
  return tile("ZooKeeper", [seconds(found.read_s), h("small", null, " a read")],
    found.server ? h("span", { id: "zookeeper" }, "connected to ", h("span", { class: "mono" }, named(found.server)), of, " ", since(found.connected_s))
      : badge("bad", "✕ not connected"),
    found.session_id && h("span", null, "session ", h("span", { class: "mono" }, found.session_id), " ", since(found.session_s)));
}

function markHistory(value) {
  const marks = value.marks;
  if (marks.known_s === null) return false;
  return card(h("h2", null, "Under-replicated ledgers, over time"), markBars(marks),
    h("p", { class: "key" }, h("span", null, `The highest number of each ${marks.step_s / 60} minutes. Known since `,
      time(Date.now() - 1000 * marks.known_s), ": this dashboard began to look then."),
    marks.rows.some((row) => !row[2]) && h("span", null, "While no auditor has looked there may have been more than is drawn; grey: none was marked then.")));
}

function tiles(value) {
  const used = value.space.total_bytes - value.space.free_bytes;
  const all = value.writable + value.read_only + value.lost;
  return h("div", { class: "tiles" },
    tile("Bookies", [count(value.writable), h("small", null, ` of ${all} writable`)],
      value.read_only > 0 && badge("warn", `◐ ${value.read_only} read-only`), value.lost > 0 && badge("bad", `✕ ${value.lost} lost`),
      value.silent > 0 && badge("bad", `? ${value.silent} silent`),
      !value.read_only && !value.lost && !value.silent && (all ? badge("good", "● all of them") : badge("warn", "○ none has joined"))),
    tile("Space", [bytes(used), h("small", null, " used")],
      bar(used, value.space.total_bytes, `disks of ${value.space.bookies} bookies`), disksCounted(value.space), uncounted(value)),
    marksTile(value),
    tile("AutoRecovery", value.autorecovery_enabled ? "enabled" : "disabled",
      value.auditor ? ["auditor ", h("span", { class: "mono" }, named(value.auditor))] : badge("warn", "▲ no auditor runs")),
    zooKeeper(value.zookeeper));
}

function charts(value) {
  if (!value.with_metrics) return quiet("No rates: no bookie has told its metrics lately. Those that are started with --http-port serve them.");
  const column = (name) => value.history_of.indexOf(name) + 1;
  const registered = value.writable + value.read_only;
  const of = value.with_metrics < registered ? `${value.with_metrics} of ${plural(registered, "bookie")}` : "all bookies";
  return h("div", { class: "two" },
    rates(`Entries, ${of}`, value.history,
      [{ name: "added", id: "adds", column: column("adds_s") }, { name: "read", id: "reads", column: column("reads_s") }], short, 1000),
    rates(`Bytes, ${of}`, value.history,
      [{ name: "added", id: "added-bytes", column: column("added_bytes_s") }, { name: "read", id: "read-bytes", column: column("read_bytes_s") }], bytes, 1024));
}

function overview(cluster, bookies, logs) {
  return [h("h1", null, "Overview"), tiles(cluster), charts(cluster), markHistory(cluster),
    card(bookieTable(bookies.rows)),
    card(table("Logs", logs.rows, LOG_COLUMNS, "There is no log."),
      logs.next !== null && h("p", { class: "pager" }, h("a", { href: "#/logs" }, `all ${count(logs.count)} logs`)))];
}

const HASH = (view, asked) => `#/${view}?${new URLSearchParams(Object.entries(asked).filter(([, value]) => value))}`;

function ledgersView(cluster, page, asked) {
  const option = (name, text) => h("option", { value: name, selected: (asked.state || "") === name }, text);
  const filter = h("form", { "data-form": "ledgers" },
    h("label", null, "Ledger id", h("input", { name: "id", inputmode: "numeric", pattern: "[0-9]*", placeholder: "shows one ledger" })),
    h("label", null, "State", h("select", { name: "state" }, option("", "all"), option("OPEN", "open"), option("IN_RECOVERY", "in recovery"),
      option("CLOSED", "closed"), option("UNREADABLE", "unreadable"))),
    h("button", null, "Show"));
  const columns = [
    ["Ledger", (row) => link("ledger", row.id), "id"],
    ["State", (row) => (row.problem ? [state(row.state), " ", said(row.problem)] : state(row.state))],
    ["Entries", (row) => count(row.entries), "n"],
    ["Size", (row) => bytes(row.bytes), "n"],
    ["Fragments", (row) => count(row.fragments), "n"],
    ["E / Qw / Qa", (row) => row.quorums || "–", "n"],
    ["Last ensemble", (row) => joined(row.ensemble || [], bookieLink), "wrap mono"],
    ["Created", (row) => h("span", { title: time(row.created_ms) }, ago(row.created_ms)), "n"],
  ];
  return [h("h1", null, "Ledgers"), card(filter, table("Ledgers, ascending by id", page.rows, columns,
    page.next === null ? "There is no such ledger from here on." : `None among the ${count(page.scanned)} ledgers that were looked at: go on below.`),
  h("p", { class: "pager" },
    asked.after && h("a", { href: HASH("ledgers", { state: asked.state }) }, "« from the beginning"),
    page.next !== null && h("a", { href: HASH("ledgers", { state: asked.state, after: page.next }) }, "go on »")))];
}

function ledgerView(cluster, ledger) {
  const custom = ledger.custom.map((one) => ({ ...one, id: one.key }));
  const ranges = [...ledger.drawn].map((one) => ({ ...one, id: number(one.first) }));
  const modes = new Map(ledger.bookies.map((one) => [one.id, one.mode]));
  const sign = (bookie) => (modes.get(bookie) === "lost" ? ["✕ ", bookieLink(bookie), " (lost)"] : bookieLink(bookie));
  return [h("h1", null, `Ledger ${ledger.id} `, state(ledger.state)),
    card(facts([
      ["Entries", ledger.entries === null ? "not closed: the end is not known" : count(ledger.entries)],
      ["Size", bytes(ledger.bytes)],
      ["Quorums", `${ledger.ensemble_size} bookies, ${ledger.write_quorum} copies, ${ledger.ack_quorum} to confirm`],
      ["Digest", ledger.digest],
      ["Created", h("span", { title: time(ledger.created_ms) }, `${time(ledger.created_ms)} (${ago(ledger.created_ms)})`)],
      ["Under-replicated", ledger.missing.length ? badge("bad", `▲ marked ${ago(ledger.marked_ms)}`)
        : cluster.marks_known.why_not ? ["not marked ", unknownMarks(cluster.marks_known)] : "not marked"],
      ["Log", ledger.log === null ? "none" : link("log", ledger.log)],
    ])),
    card(h("h2", null, "Where its entries are"), ledger.fragments > ledger.drawn.length && quiet(`The last ${ledger.drawn.length} of ${count(ledger.fragments)} fragments.`),
      fragments(ledger), fragmentKey(ledger),
      h("details", null, h("summary", null, "The same as a table"), table("Fragments", ranges, [
        ["From entry", (row) => row.id],
        ["To entry", (row) => (row.last === null ? "open" : row.last < row.first ? "no entry" : number(row.last)), "n"],
        ["Ensemble", (row) => joined(row.ensemble, sign), "wrap mono"]], ""))),
    card(table("Custom metadata", custom, [
      ["Key", ID, "id"], ["Value", (row) => [h("bdi", { dir: "ltr", class: "value" }, row.value), row.is_text ? "" : " (hexadecimal)", row.bytes > 1000 ? " …" : ""], "wrap mono"],
      ["Bytes", (row) => count(row.bytes), "n"]], "None."))];
}

function logsView(cluster, page, asked) {
  return [h("h1", null, "Logs"), card(table(`${count(page.count)} logs, by name`, page.rows, LOG_COLUMNS, "There is no log."),
    h("p", { class: "pager" },
      asked.after && h("a", { href: "#/logs" }, "« from the beginning"),
      page.next !== null && h("a", { href: HASH("logs", { after: page.next }) }, "go on »")))];
}

function logView(cluster, log) {
  const open = log.drawn_open.length;
  return [h("h1", { class: log.name.length > 60 && "long" }, named(log.name, Infinity)),
    card(facts([
      ["Holds", log.content || "nothing yet"], ["Version", count(log.version)],
      ["Ledgers", `${count(log.ledgers)} closed, ${open} open`], ["Rows", grown(log, log.rows, count)], ["Size", grown(log, log.bytes, bytes)],
      ["Last commit", `${time(log.committed_ms)} (${ago(log.committed_ms)})`],
      ["Old versions stay", span(log.retention.versions_s)],
      ["Data stays", log.retention.rows_s === null ? "for ever" : span(log.retention.rows_s)],
    ])),
    tierCard(log.tier),
    card(h("h2", null, "Its ledgers, as wide as they are large"),
      log.earlier.ledgers > 0 && quiet(`Before these: ${count(log.earlier.ledgers)} ledgers, ${count(log.earlier.rows)} rows, ${bytes(log.earlier.bytes)}.`),
      log.drawn.length + open ? ledgerRow(log) : quiet("None yet."),
      h("p", { class: "key" }, open > 0 && h("span", null, "dashed: open, its writer may still append"), log.streams.length > 0 && h("span", null, "▲ a stream reads here")),
      h("details", null, h("summary", null, "The same as a table"), table("Ledgers of the log, in its order", [...log.drawn, ...log.drawn_open], [
        ["Ledger", (row) => link("ledger", row.id), "id"], ["Entries", (row) => count(row.entries), "n"],
        ["Rows", (row) => count(row.rows), "n"], ["Size", (row) => (row.version ? "open" : bytes(row.bytes)), "n"]], "None."))),
    card(table("Streams that read it", log.streams, [
      ["Stream", (row) => named(row.name)], ["Rows behind", (row) => grown(log, row.lag_rows, count), "n"],
      ["Bytes behind", (row) => (row.lag_bytes === null ? "not known" : grown(log, row.lag_bytes, bytes)), "n"],
      ["Oldest unread commit", (row) => (row.unread_since_ms === null ? "–" : ago(row.unread_since_ms)), "n"],
      ["At", (row) => (row.ledger_id === null ? `behind version ${row.version}` : `ledger ${row.ledger_id}, entry ${row.entry_id}`)],
      ["Told", (row) => ago(row.updated_ms), "n"]], "None has published a cursor.")),
    card(table("Newest commits", log.commits, [
      ["Version", (row) => count(row.version)], ["Kind", (row) => row.kind], ["Rows", (row) => (row.opened && !row.rows ? "opened" : count(row.rows)), "n"],
      ["Ledgers added", (row) => count(row.added), "n"], ["Removed", (row) => count(row.removed), "n"],
      ["Application", (row) => (row.application ? named(row.application) : "–"), "wrap"], ["Time", (row) => time(row.time_ms), "n"]], "None yet."))];
}

function underReplicatedView(cluster, found) {
  const more = found.count > found.rows.length ? `, the first ${count(found.rows.length)} of them` : "";
  const known = found.known;
  const title = known.why_not ? (found.count ? `At least ${plural(found.count, "ledger lacks", "ledgers lack")} copies` : "Ledgers that lack copies: not known")
    : `${plural(found.count, "ledger lacks", "ledgers lack")} copies`;
  const none = known.why_not ? `None is marked, but ${known.why_not}: that does not say that every copy is there.`
    : "None is marked: every copy is there, as far as the auditor has looked.";
  return [h("h1", null, "Under-replicated ledgers"), card(
    quiet("AutoRecovery is ", found.enabled ? "enabled" : "disabled", "; ", found.auditor ? ["the auditor is ", named(found.auditor)] : "no auditor runs", ". ", audited(known)),
    known.why_not && h("p", { id: "unknown" }, unknownMarks(known)),
    found.lost.length > 0 && h("p", { class: "names" }, `${plural(found.lost.length, "bookie is", "bookies are")} lost; their pages list the ledgers that name them: `,
      joined(found.lost.slice(0, 20), bookieLink), found.lost.length > 20 && " …"),
    table(`${title}${more}`, found.rows, [
      ["Ledger", (row) => link("ledger", row.id), "id"],
      ["Missing on", (row) => (row.missing.length ? joined(row.missing, bookieLink) : "not told"), "wrap mono"],
      ["Marked", (row) => h("span", { title: time(row.marked_ms) }, ago(row.marked_ms)), "n"],
      ["Worked on by", (row) => (row.worker ? named(row.worker) : "nobody now"), "wrap"]], none))];
}
