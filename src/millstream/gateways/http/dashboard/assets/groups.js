// All consumer groups, with how far each is behind.

import { get } from "./api.js";
import { code, empty, fill, h } from "./dom.js";
import { count, plural, short } from "./format.js";
import { List } from "./list.js";

const KINDS = { Stable: "good", Empty: "", Dead: "bad" };

export function stateBadge(state) {
  return h("span", { class: `badge ${KINDS[state] ?? "warn"}` }, state);
}

export function open() {
  let rows = [];
  let port = "9092";
  get("api/facts").then(({ doors }) => {
    port = /:([1-9]\d*)$/.exec(doors.kafka)?.[1] ?? port;
    if (body.querySelector(".empty")) draw();
  }, () => {});
  const search = h("input", { type: "search", class: "grow", placeholder: "Find a group or a topic  ( / )", "aria-label": "Find a group", oninput: () => draw() });
  const number = h("small", { role: "status" });
  const list = new List({
    label: "Consumer groups",
    open: (row) => { location.hash = `#/groups/${encodeURIComponent(row.key)}`; },
    columns: [
      { title: "Group", size: "minmax(0, 1.4fr)", cell: (row) => h("a", { class: "strong", href: `#/groups/${encodeURIComponent(row.key)}`, tabindex: "-1" }, row.key), sort: (row) => row.key },
      { title: "Reads", size: "minmax(0, 1fr)", wide: true, cell: (row) => h("span", { class: "soft" }, row.topics.slice(0, 3).join(", ") + (row.topics.length > 3 ? " …" : "")) },
      { title: "State", size: "130px", narrow: "90px", cell: (row) => stateBadge(row.state), sort: (row) => row.state },
      { title: "Members", size: "90px", number: true, wide: true, cell: (row) => count(row.members), sort: (row) => row.members },
      { title: "Lag", size: "100px", narrow: "64px", number: true, cell: (row) => (row.lag === null ? "–" : row.neverRead ? h("span", { title: `${plural(row.neverRead, "partition")} never read` }, short(row.lag)) : short(row.lag)), sort: (row) => row.lag ?? -1 },
    ],
  });
  const body = h("div", {}, list.element);

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const shown = rows.filter((row) => [row.key, ...row.topics].some((each) => each.toLowerCase().includes(wanted)));
    number.textContent = plural(shown.length, "group");
    if (shown.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.show(shown);
    } else if (rows.length) {
      fill(body, empty("No group is called that", "Try a part of its name, or of a topic that it reads."));
    } else {
      fill(body, empty("No consumer groups yet", "A group remembers how far it has read. It comes into being when a consumer joins it, or with its first commit:",
        code(`kcat -b ${location.hostname}:${port} -G my-group greetings`)));
    }
  }

  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); list.focus(0); }
  });

  return {
    title: "Groups",
    view: "groups",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, "Consumer groups")),
      h("div", { class: "toolbar" }, search, number), body),
    rows(table) {
      rows = [...table].map(([key, [state, type, members, lag, topics, neverRead]]) => ({ key, state, type, members, lag, topics, neverRead }));
      draw();
    },
  };
}
