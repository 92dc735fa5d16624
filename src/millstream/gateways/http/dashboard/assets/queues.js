// All queues: subscriptions whose messages are acknowledged one by one.

import { ask, at, get } from "./api.js";
import { choice, dialog, field, toast } from "./dialog.js";
import { button, empty, fill, h } from "./dom.js";
import { count, plural, short } from "./format.js";
import { List } from "./list.js";

export const queuePath = (row) => `#/queues/${encodeURIComponent(row.topic)}/${encodeURIComponent(row.name)}`;

export function open() {
  let rows = [];
  const search = h("input", { type: "search", class: "grow", placeholder: "Find a queue or a topic  ( / )", "aria-label": "Find a queue", oninput: () => draw() });
  const number = h("small", { role: "status" });
  const list = new List({
    label: "Queues",
    open: (row) => { location.hash = queuePath(row); },
    columns: [
      { title: "Queue", size: "minmax(0, 1fr)", cell: (row) => h("a", { class: "strong", href: queuePath(row), tabindex: "-1" }, row.name), sort: (row) => row.name },
      { title: "Topic", size: "minmax(0, 1fr)", cell: (row) => row.topic, sort: (row) => row.topic },
      { title: "Type", size: "110px", wide: true, cell: (row) => h("span", { class: "badge" }, row.type.replace("_", " ")), sort: (row) => row.type },
      { title: "Backlog", size: "90px", narrow: "64px", number: true, cell: (row) => short(row.backlog), sort: (row) => row.backlog },
      { title: "In flight", size: "90px", number: true, wide: true, cell: (row) => count(row.in_flight), sort: (row) => row.in_flight },
      { title: "Died", size: "80px", narrow: "50px", number: true, cell: (row) => (row.dead ? h("span", { class: "badge warn" }, count(row.dead)) : "0"), sort: (row) => row.dead },
    ],
  });
  const body = h("div", {}, list.element);
  const create = () => button("Create queue", () => createQueue(), { kind: "primary", icon: "plus" });

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const shown = rows.filter((row) => row.key.toLowerCase().includes(wanted));
    number.textContent = plural(shown.length, "queue");
    if (shown.length) {
      if (!list.element.isConnected) fill(body, list.element);
      list.show(shown);
    } else if (rows.length) {
      fill(body, empty("No queue is called that", "Try a part of its name, or of its topic."));
    } else {
      fill(body, empty("No queues yet", "A queue hands out the messages of a topic one by one, hands them out again if they are not acknowledged, and puts those that fail too often aside as dead letters.", create()));
    }
  }

  return {
    title: "Queues",
    view: "queues",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, "Queues"), create()),
      h("div", { class: "toolbar" }, search, number), body),
    rows(table) {
      rows = [...table].map(([key, row]) => ({ key, ...row }));
      draw();
    },
  };
}

async function createQueue() {
  const { topics } = await get("topics");
  const names = h("datalist", { id: "topic-names" }, topics.map((each) => h("option", { value: each.name })));
  const topic = h("input", { type: "text", list: "topic-names", autocomplete: "off", spellcheck: "false" });
  const name = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "workers" });
  const type = choice([["shared", "Shared: any consumer takes the next"], ["key_shared", "Key shared: one consumer for each key"], ["failover", "Failover: one consumer, others wait"], ["exclusive", "Exclusive: one consumer alone"]]);
  const start = choice([["earliest", "With the first message"], ["latest", "With what comes from now on"]]);
  const timeout = h("input", { type: "number", min: 1, placeholder: "30" });
  const deliveries = h("input", { type: "number", min: 0, placeholder: "as the broker is set" });
  dialog({
    title: "Create queue",
    action: "Create queue",
    content: [field("Topic", topic), names, field("Name", name), field("Type", type), field("Begins", start),
      h("div", { class: "pair" }, field("Seconds to acknowledge", timeout), field("Most deliveries", deliveries, "Then it is a dead letter"))],
    async act() {
      if (!topic.value || !name.value) throw new Error("Say which topic, and what the queue is called.");
      const wanted = { type: type.value, start: start.value };
      if (timeout.value) wanted.ack_timeout_ms = Math.round(Number(timeout.value) * 1000);
      if (deliveries.value) wanted.max_deliveries = Number(deliveries.value);
      await ask("PUT", `topics/${at(topic.value)}/subscriptions/${at(name.value)}`, wanted);
      toast(`Queue ${name.value} is created`);
    },
  });
}
