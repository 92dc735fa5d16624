// The frame of the dashboard: which page is shown, the theme, and keys that work everywhere.

import { dialog } from "./dialog.js";
import { fill, h, icon } from "./dom.js";
import { follow, history, unfollow } from "./live.js";

const PAGES = {
  overview: () => import("./overview.js"),
  topics: () => import("./topics.js"),
  topic: () => import("./topic.js"),
  groups: () => import("./groups.js"),
  group: () => import("./group.js"),
  queues: () => import("./queues.js"),
  queue: () => import("./queue.js"),
  pipelines: () => import("./pipelines.js"),
  connections: () => import("./connections.js"),
  settings: () => import("./settings.js"),
};
const AGAIN_MS = 2000;
const DETAILS = { topics: "topic", groups: "group", queues: "queue" };

const main = document.getElementById("main");
let page = null;
let turn = 0;

// What follows the # is a path of encoded parts, and what a page keeps of itself behind a ?.
export function parts() {
  return location.hash.replace(/^#\/?/, "").split("?")[0].split("/").filter(Boolean).map(decoded);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

async function route() {
  const mine = ++turn;
  const [section = "overview", ...rest] = parts();
  const name = rest.length && Object.hasOwn(DETAILS, section) ? DETAILS[section] : section;
  for (const box of document.querySelectorAll("dialog[open]")) box.close();
  if (page?.stays?.(name, rest)) return;
  page?.close?.();
  page = null;
  unfollow();
  if (!Object.hasOwn(PAGES, name)) {
    mark(null);
    show("Not found", h("div", { class: "empty" }, h("h2", {}, "There is no such page"), h("p", {}, h("a", { href: "#/" }, "Go to the overview"))));
    return;
  }
  const open = await loaded(name);
  if (mine !== turn) return;
  mark(section);
  if (!open) {
    show("Not loaded", h("div", { class: "empty" }, h("h2", {}, "The broker does not answer"), h("p", {}, "The page is shown as soon as it does.")));
    setTimeout(() => { if (mine === turn) route(); }, AGAIN_MS);
    return;
  }
  page = open(...rest);
  show(page.title, page.element);
  if (page.view) {
    follow(page.view, page.name, page);
    if (history.length) page.pulse?.(history.at(-1), history);
  }
}

// Its way in; null where it cannot be had, because the broker is away.
async function loaded(name) {
  try { return (await PAGES[name]()).open; } catch { return null; }
}

function mark(section) {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function show(title, element) {
  document.title = title === "Overview" ? "Millstream" : `${title} · Millstream`;
  fill(main, element);
  scrollTo(0, 0);
}

// The theme: the system's, unless one was chosen.

const THEMES = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const toggle = document.getElementById("theme");

function stored() {
  try { return localStorage.getItem("millstream-theme"); } catch { return null; }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  fill(toggle, icon({ auto: "auto", light: "sun", dark: "moon" }[theme]));
  toggle.title = THEMES[theme];
  toggle.setAttribute("aria-label", THEMES[theme]);
}

toggle.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  try { localStorage.setItem("millstream-theme", theme); } catch { /* it holds until the page is loaded again */ }
  setTheme(theme);
});

// Keys

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.closest("input, select, textarea");
  if (event.key === "Escape" && isTyping) event.target.blur();
  else if (isTyping) return;
  else if (event.key === "/") focusSearch(event);
  else if (event.key === "?") shortcuts();
  else if (event.key === "ArrowDown" && event.target === document.body) main.querySelector(".list-row")?.focus();
});

function focusSearch(event) {
  const search = main.querySelector('input[type="search"]');
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
}

function shortcuts() {
  const known = [["/", "Go to the search field"], ["↑ ↓", "Move in a list"], ["Enter", "Open what is chosen"], ["← →", "The message before and after, where one is open"], ["Esc", "Close what is open"], ["?", "This list"]];
  dialog({ title: "Keys", content: h("dl", { class: "keys" }, known.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])) });
}

// Where it leads is no page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

setTheme(Object.hasOwn(THEMES, stored()) ? stored() : "auto");
addEventListener("hashchange", route);
// The other pages are fetched ahead, so that they open while the broker is away.
route().then(() => { for (const name of Object.keys(PAGES)) loaded(name); });
