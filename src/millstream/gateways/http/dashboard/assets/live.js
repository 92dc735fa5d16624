// The one stream of an open page: the broker's pulse, and the table that the page shows. While the
// page is hidden there is no stream, so nobody computes what nobody sees.

import { notice, toast } from "./dialog.js";

const MOST_BEATS = 600;
const KEPT_MS = 300_000;
const AGAIN_MS = 2000;
const LOST = "The broker does not answer. What is shown is from before.";

export const history = [];

const status = document.getElementById("live");
let stream = null;
let current = null;

export function follow(view, name, { rows, pulse, problem, lost }) {
  current = { view, name, rows, pulse, problem, lost, table: new Map() };
  connect();
}

export function unfollow() {
  current = null;
  disconnect();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    tell("paused", "Paused");
  } else if (current) {
    connect();
  }
});

// A page that is loaded again goes on where its charts were.

try {
  const kept = JSON.parse(sessionStorage.getItem("millstream-pulse") ?? "[]");
  history.push(...kept.filter((each) => each.at > Date.now() - KEPT_MS && each.at <= Date.now()));
} catch { /* what was kept is of no use */ }

window.addEventListener("pagehide", () => {
  disconnect();
  try { sessionStorage.setItem("millstream-pulse", JSON.stringify(history.slice(-KEPT_MS / 1000))); } catch { /* there is no room */ }
});
window.addEventListener("pageshow", (event) => { if (event.persisted && current) connect(); });

function connect() {
  disconnect();
  if (document.hidden) return;
  const page = current;
  const parameters = new URLSearchParams({ view: page.view });
  if (page.name) parameters.set("name", page.name);
  stream = new EventSource(`api/events?${parameters}`);
  stream.addEventListener("open", () => tell("live", "Live"));
  stream.addEventListener("error", (event) => lost(event.target));
  stream.addEventListener("pulse", (event) => beat(JSON.parse(event.data), page));
  stream.addEventListener(page.view, (event) => take(JSON.parse(event.data), page));
}

// A browser tries again by itself, but not where it was refused: by a broker that still recovers.
function lost(ended) {
  tell("lost", "Reconnecting");
  current?.lost?.();
  if (ended.readyState !== EventSource.CLOSED) return;
  setTimeout(() => { if (stream === ended && current) connect(); }, AGAIN_MS);
}

function disconnect() {
  stream?.close();
  stream = null;
}

let latest = {};
let troubled = null;

function beat(told, page) {
  latest = told.all ? { ...told.set } : { ...latest, ...told.set };
  for (const name of told.gone ?? []) delete latest[name];
  const last = history.at(-1);
  if (last && last.at === latest.at) return;
  history.push(latest);
  if (history.length > MOST_BEATS) history.splice(0, history.length - MOST_BEATS);
  if (page === current) page.pulse?.(latest, history);
}

function take(told, page) {
  if (page !== current) return;
  if (told.problem) {
    if (page.problem) page.problem(told.problem);
    else if (told.problem.detail !== troubled) toast(told.problem.detail, "bad");
    troubled = told.problem.detail;
    return;
  }
  troubled = null;
  if (told.all) page.table.clear();
  for (const name of told.gone) page.table.delete(name);
  for (const [name, row] of Object.entries(told.set)) page.table.set(name, row);
  page.rows?.(page.table, told);
}

let hideNotice = null;

function tell(state, words) {
  status.dataset.state = state;
  if (state === "lost") hideNotice ??= notice(LOST);
  else if (hideNotice) hideNotice = hideNotice();
  const text = status.querySelector("span");
  if (text.textContent !== words) text.textContent = words;
}
