// All topics: found by name, sorted, created.

import { button, empty, fill, h } from "./dom.js";
import { bytes, count, plural, short } from "./format.js";
import { List } from "./list.js";
import { createTopic } from "./topic_dialogs.js";

export function open() {
  let rows = [];
  const search = h("input", { type: "search", class: "grow", placeholder: "Find a topic  ( / )", "aria-label": "Find a topic", oninput: () => draw() });
  const internal = h("input", { type: "checkbox", onchange: () => draw() });
  const number = h("small", { role: "status" });
  const list = new List({
    label: "Topics",
    open: (row) => { location.hash = `#/topics/${encodeURIComponent(row.key)}`; },
    columns: [
      { title: "Topic", size: "minmax(0, 1fr)", cell: named, sort: (row) => row.key },
      { title: "Partitions", size: "90px", number: true, wide: true, cell: (row) => count(row.partitions), sort: (row) => row.partitions },
      { title: "Messages", size: "130px", narrow: "84px", number: true, cell: (row) => count(row.messages), sort: (row) => row.messages },
      { title: "Size", size: "100px", narrow: "70px", number: true, cell: (row) => bytes(row.size), sort: (row) => row.size },
      { title: "Incoming", size: "100px", number: true, wide: true, cell: (row) => (row.rate ? `${short(row.rate)}/s` : h("span", { class: "soft" }, "quiet")), sort: (row) => row.rate },
    ],
  });
  const body = h("div", {}, list.element);
  const known = new Map();

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const all = rows.filter((row) => internal.checked || !row.internal);
    const shown = all.filter((row) => row.key.toLowerCase().includes(wanted));
    number.textContent = wanted ? `${count(shown.length)} of ${plural(all.length, "topic")}` : plural(all.length, "topic");
    if (shown.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.show(shown);
    } else if (!rows.some((row) => !row.internal) && !wanted && !internal.checked) {
      fill(body, empty("No topics yet", "A topic holds messages in the order in which they came. Create one here, or just send to it: it comes into being with its first message.",
        button("Create topic", () => createTopic(), { kind: "primary", icon: "plus" })));
    } else {
      fill(body, empty("No topic is called that", "Try a part of the name, or show the broker's own topics.",
        button("Clear the search", () => { search.value = ""; draw(); search.focus(); })));
    }
  }

  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); list.focus(0); }
    if (event.key === "Enter" && list.rows.length) list.choose(list.rows[0].key);
  });

  return {
    title: "Topics",
    view: "topics",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, "Topics"), button("Create topic", () => createTopic(), { kind: "primary", icon: "plus" })),
      h("div", { class: "toolbar" }, search, h("label", { class: "check" }, internal, "The broker's own"), number),
      body),
    rows(table, told) {
      if (told.all) known.clear();
      for (const name of told.gone) known.delete(name);
      for (const [key, [partitions, messages, size, rate, stopped, isInternal]] of Object.entries(told.set)) {
        known.set(key, { key, partitions, messages, size, rate, stopped, internal: Boolean(isInternal) });
      }
      rows = [...known.values()];
      draw();
    },
  };
}

function named(row) {
  return [
    h("a", { class: "strong", href: `#/topics/${encodeURIComponent(row.key)}`, tabindex: "-1" }, row.key), " ",
    row.internal && h("span", { class: "badge" }, "internal"),
    row.stopped > 0 && h("span", { class: "badge bad" }, `${row.stopped} stopped`),
  ];
}
