// Shows the view that the address names behind its #, and refreshes it every two seconds while the page is visible.
"use strict";

const PERIOD_MS = 2000;
const OLD_S = 20;

const VIEWS = {
  "": { title: "Overview", asks: () => ["/api/bookies", "/api/logs?limit=8"], draw: overview },
  bookies: { title: "Bookies", asks: () => ["/api/bookies"], draw: bookiesView },
  bookie: {
    title: "Bookie",
    asks: (id, asked) => [`/api/bookie?id=${encodeURIComponent(id)}`, `/api/ledgers?${new URLSearchParams({ limit: 50, ...asked, bookie: id })}`],
    draw: bookieView,
  },
  ledgers: { title: "Ledgers", asks: (id, asked) => [`/api/ledgers?${new URLSearchParams(asked)}`], draw: ledgersView },
  ledger: { title: "Ledger", asks: (id) => [`/api/ledger?id=${encodeURIComponent(id)}`], draw: ledgerView },
  logs: { title: "Logs", asks: (id, asked) => [`/api/logs?${new URLSearchParams(asked)}`], draw: logsView },
  log: { title: "Log", asks: (id) => [`/api/log?name=${encodeURIComponent(id)}`], draw: logView },
  underreplicated: { title: "Under-replicated", asks: () => ["/api/underreplicated"], draw: underReplicatedView },
};
const PARENTS = { bookie: "bookies", ledger: "ledgers", log: "logs" };

const main = document.getElementById("main");
let shownPlace = "";
let timer = 0;
let turn = 0;
let cluster = JSON.parse(document.getElementById("first").textContent);
let failingSince = null;

// The view, the id and the query that the address names.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/");
  let text = "";
  try {
    text = decodeURIComponent(id || "");
  } catch {
    text = id;
  }
  return { name: Object.hasOwn(VIEWS, name) ? name : "", id: text, asked: Object.fromEntries(new URLSearchParams(query || "")) };
}

async function ask(address) {
  const reply = await fetch(address, { cache: "no-store" });
  if (!reply.headers.get("Content-Type").startsWith("application/json")) throw new Error(await reply.text());
  const answer = await reply.json();
  return reply.status === 400 ? { value: { absent: answer.problem }, age_s: 0, problem: "" } : answer;
}

// The line at the top: the age of the oldest figures and, if they are old, the reason.
function showAge(answers, failure) {
  const oldest = Math.max(0, ...answers.map((one) => one.age_s ?? 0));
  const bad = answers.filter((one) => one.problem).sort((a, b) => b.failing_s - a.failing_s)[0];
  const old = Boolean(failure || bad || oldest > OLD_S);
  if (!old) failingSince = null;
  else failingSince ??= Date.now() - 1000 * (bad ? bad.failing_s : failure ? 0 : oldest);
  const age = document.getElementById("age");
  age.className = old ? "age old" : "age";
  age.textContent = failure ? "not updated" : `updated ${Math.round(oldest)} s ago`;
  main.classList.toggle("old-figures", old);
  const notice = document.getElementById("notice");
  const reason = failure ? `This page's server does not answer (${failure})` : bad ? `The cluster does not answer (${said(bad.problem)})` : "The figures are not updated";
  const text = old ? `${reason} since ${clock(failingSince)}. What is shown is from then.` : "";
  if (notice.textContent.split(" since ")[0] !== text.split(" since ")[0]) notice.textContent = text;
}

function showCluster() {
  const value = cluster.value;
  if (!value) return;
  document.getElementById("where").textContent = said(`${value.metadata} · ${value.instance_id}`);
  const marks = document.getElementById("marks");
  const why = value.marks_known.why_not;
  marks.textContent = value.under_replicated ? count(value.under_replicated) : "?";
  marks.title = why ? `not known: ${said(why)}` : "";
  marks.hidden = value.under_replicated === 0 && !why;
}

function show(children, at, isNew) {
  const next = h("main", null, children);
  const absent = children.length === 1;
  document.title = `${at.id ? shown(at.id, 80) : VIEWS[at.name].title} · bk_spark${absent ? " (nothing there)" : ""}`;
  for (const one of document.querySelectorAll("nav a")) {
    const current = one.getAttribute("href") === `#/${PARENTS[at.name] || at.name}`;
    if (current) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  if (isNew) {
    main.replaceChildren(...next.childNodes);
    if (shownPlace) main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    shownPlace = location.hash || "#/";
    main.dataset.view = shownPlace;
    return;
  }
  const names = [...main.attributes].map(({ name, value }) => [name, value]);
  names.forEach(([name, value]) => next.setAttribute(name, value));
  morph(main, next);
}

function contentOf(at, answers) {
  const values = answers.map((one) => one.value);
  const absent = values.find((value) => value && value.absent);
  if (absent) return [quiet(said(absent.absent))];
  if (!cluster.value || values.some((value) => !value)) return [quiet("Nothing is known yet.")];
  return VIEWS[at.name].draw(cluster.value, ...values, at.asked);
}

// A refresh that is overtaken by a newer one shows nothing.
async function refresh() {
  clearTimeout(timer);
  const thisTurn = ++turn;
  const at = place();
  const isNew = (location.hash || "#/") !== shownPlace;
  try {
    const answers = await Promise.all(["/api/cluster", ...VIEWS[at.name].asks(at.id, at.asked)].map(ask));
    if (thisTurn !== turn) return;
    cluster = answers[0];
    showCluster();
    show(contentOf(at, answers.slice(1)), at, isNew);
    showAge(answers, "");
  } catch (failure) {
    if (thisTurn !== turn) return;
    console.info(`not updated: ${failure.message}`);
    showAge([], failure.message);
  }
  if (!document.hidden) timer = setTimeout(refresh, PERIOD_MS);
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
window.addEventListener("hashchange", refresh);
window.addEventListener("resize", refresh);
document.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  location.hash = given.id ? `#/ledger/${encodeURIComponent(given.id.trim())}` : HASH("ledgers", { state: given.state });
});

showCluster();
if (!place().name && cluster.value) main.replaceChildren(h("h1", null, "Overview"), tiles(cluster.value), charts(cluster.value), markHistory(cluster.value) || "");
refresh();
