// Who is connected, through whichever door.

import { empty, fill, h } from "./dom.js";
import { ago, plural, time } from "./format.js";
import { List } from "./list.js";

const KINDS = { kafka: "good", http: "second", pylogstreams: "warn" };

export function open() {
  let rows = [];
  const search = h("input", { type: "search", class: "grow", placeholder: "Find a client  ( / )", "aria-label": "Find a client", oninput: () => draw() });
  const number = h("small", { role: "status" });
  const list = new List({
    label: "Connections",
    sort: 3,
    down: true,
    columns: [
      { title: "Door", size: "112px", narrow: "74px", cell: (row) => h("span", { class: `badge ${KINDS[row.door] ?? ""}` }, row.door), sort: (row) => row.door },
      { title: "Client", size: "minmax(0, 1.2fr)", cell: (row) => [h("span", { class: "strong", title: row.client }, named(row.client)), " ", h("small", {}, row.use)], sort: (row) => row.client },
      { title: "Address", size: "170px", narrow: "124px", mono: true, cell: (row) => row.peer, sort: (row) => row.peer },
      { title: "Since", size: "196px", wide: true, cell: (row) => time(row.since).slice(0, 19), sort: (row) => row.since },
      { title: "Last heard", size: "120px", wide: true, cell: (row) => ago(row.used), sort: (row) => row.used },
    ],
  });
  const body = h("div", {}, list.element);

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const shown = rows.filter((row) => `${row.door} ${row.client} ${row.peer} ${row.use}`.toLowerCase().includes(wanted));
    number.textContent = plural(shown.length, "connection");
    if (shown.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.show(shown);
    } else {
      fill(body, empty("No connection is like that", "Try a part of a client's name or address."));
    }
  }

  return {
    title: "Connections",
    view: "connections",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, "Connections")),
      h("div", { class: "toolbar" }, search, number), body),
    rows(table) {
      rows = [...table].map(([key, [door, peer, client, since, used, use]]) => ({ key, door, peer, client, since, used, use }));
      draw();
    },
  };
}

// Browsers call themselves by all names there are.
function named(client) {
  const browser = /^Mozilla\//.test(client) && /(Firefox|Edg|OPR|Chrome|Version)\/(\d+)/.exec(client);
  if (!browser) return client || "unnamed";
  return `${{ Edg: "Edge", OPR: "Opera", Version: "Safari" }[browser[1]] ?? browser[1]} ${browser[2]}`;
}
