// One topic: its messages, its partitions with their segments, and its settings.

import { Browser } from "./browser.js";
import { button, empty, fill, h, icon } from "./dom.js";
import { bytes, count, explained, plural } from "./format.js";
import { configureTopic, deleteTopic, sendMessage } from "./topic_dialogs.js";

const TABS = { messages: "Messages", partitions: "Partitions", settings: "Settings" };
const MOST_DRAWN = 100;

export function open(name, asked = "messages") {
  let tab = known(asked);
  const head = h("div", { class: "chips" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const body = h("div", {});
  const actions = [
    button("Send message", () => send(), { kind: "primary", icon: "plus" }),
    button("Configure", () => configureTopic(name)),
    button("Delete", () => deleteTopic(name, plural(topic?.messages ?? 0, "message")), { kind: "danger" }),
  ];
  const bar = h("header", { class: "page-head" },
    h("h1", {}, h("a", { class: "crumb", href: "#/topics" }, icon("left"), h("small", {}, "Topics")), h("br"), name), actions);
  const element = h("div", { class: "page" }, bar, head, tabs, body);
  let topic = null;
  let browser = null;
  const send = () => sendMessage(name, topic?.partitions ?? 1, () => browser?.sent());
  for (const each of actions) each.disabled = true;

  function show() {
    fill(tabs, Object.entries(TABS).map(([key, label]) =>
      h("a", { role: "tab", href: `#/topics/${encodeURIComponent(name)}/${key}`, "aria-selected": String(key === tab) }, label)));
    if (tab !== "messages") { browser?.close(); browser = null; }
    if (!topic) return;
    if (tab === "messages") {
      if (!browser) fill(body, (browser = new Browser(name, topic.partitions, send)).element);
      browser.know(topic);
    } else if (tab === "partitions") {
      showPartitions(body, topic);
    } else {
      showSettings(body, topic);
    }
  }

  show();
  return {
    title: name,
    element,
    view: "topic",
    name,
    stays(page, [otherName, otherTab = "messages"]) {
      if (page !== "topic" || otherName !== name) return false;
      tab = known(otherTab);
      browser?.close();
      browser = null;
      fill(body);
      show();
      return true;
    },
    rows(table) {
      const before = topic?.topic_id;
      const told = Object.fromEntries([...table].filter(([key]) => !key.startsWith("partition/")));
      topic = { ...told, details: [...table].filter(([key]) => key.startsWith("partition/")).map(([, each]) => each) };
      topic.details.sort((a, b) => a.partition - b.partition);
      // Another one of the same name: what was read of the one before is gone.
      if (before && before !== topic.topic_id) { browser?.close(); browser = null; }
      for (const each of actions) [each.hidden, each.disabled] = [topic.is_internal, false];
      fill(head, [plural(topic.partitions, "partition"), messageWords(topic), bytes(topic.size_bytes)].map((each) => h("span", { class: "badge" }, each)),
        topic.settings["cleanup.policy"].includes("compact") && h("span", { class: "badge second" }, "compacted"),
        topic.is_internal && h("span", { class: "badge" }, "internal"));
      show();
    },
    problem(problem) {
      topic = null;
      browser?.close();
      browser = null;
      fill(head);
      for (const each of actions) each.hidden = true;
      fill(body, problem.status === 404
        ? empty("There is no topic of this name", "It may have been deleted.", h("a", { href: "#/topics" }, "See all topics"))
        : h("p", { class: "problem" }, problem.detail));
    },
    close() { browser?.close(); },
  };
}

// Offsets are counted; compaction leaves some of them without a message.
function messageWords(topic) {
  const isCompacted = topic.settings["cleanup.policy"].includes("compact");
  return `${isCompacted && topic.messages ? "at most " : ""}${plural(topic.messages, "message")}`;
}

function known(tab) {
  return Object.hasOwn(TABS, tab) ? tab : "messages";
}

function showPartitions(body, topic) {
  const opened = new Set([...body.querySelectorAll("details[open]")].map((each) => each.dataset.partition));
  fill(body, h("section", { class: "card" },
    h("header", {}, h("h2", {}, "Partitions"), legend()),
    h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "#"), h("th", { class: "number" }, "First"), h("th", { class: "number" }, "End"), h("th", { class: "number" }, "Messages"), h("th", { class: "number" }, "Size"), h("th", {}, "Segments, oldest first"))),
      h("tbody", {}, topic.details.map((each) => partitionRow(each, opened)))))));
}

function partitionRow(each, opened) {
  const shown = each.segments.slice(-MOST_DRAWN);
  return h("tr", {},
    h("td", {}, String(each.partition)),
    h("td", { class: "number" }, count(each.start_offset)),
    h("td", { class: "number" }, count(each.end_offset)),
    h("td", { class: "number" }, each.end_offset === null ? "–" : count(each.end_offset - each.start_offset)),
    h("td", { class: "number" }, bytes(each.size_bytes)),
    h("td", {},
      each.failure && h("p", { class: "problem" }, each.failure),
      h("div", { class: "segments", role: "img", "aria-label": segmentWords(each.segments) },
        shown.map((segment) => h("i", {
          class: segment.state.toLowerCase(),
          style: { "flex-grow": String(Math.max(segment.size_bytes, 1)) },
          title: `${segment.state}: offsets ${count(segment.base_offset)} to ${count(segment.next_offset)}, ${bytes(segment.size_bytes)}`,
        }))),
      h("details", { class: "more", "data-partition": String(each.partition), open: opened.has(String(each.partition)) },
        h("summary", {}, plural(each.segments.length, "segment")),
        h("table", {},
          h("thead", {}, h("tr", {}, h("th", {}, "State"), h("th", { class: "number" }, "From offset"), h("th", { class: "number" }, "To before"), h("th", { class: "number" }, "Size"))),
          h("tbody", {}, shown.map((segment) => h("tr", {},
            h("td", {}, h("span", { class: `badge ${{ Active: "good", Full: "second" }[segment.state] ?? ""}` }, segment.state)),
            h("td", { class: "number" }, count(segment.base_offset)),
            h("td", { class: "number" }, count(segment.next_offset)),
            h("td", { class: "number" }, bytes(segment.size_bytes)))))))));
}

function segmentWords(segments) {
  const states = {};
  for (const each of segments) states[each.state] = (states[each.state] ?? 0) + 1;
  return Object.entries(states).map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ");
}

function legend() {
  return h("div", { class: "lifecycle" },
    h("span", {}, h("i", { class: "key-active" }), "Active: takes messages"),
    h("span", {}, h("i", { class: "key-full" }), "Full: is being synced"),
    h("span", {}, h("i", { class: "key-archived" }), "Archived: waits for retention"));
}

function showSettings(body, topic) {
  const own = topic.own_settings;
  const names = Object.keys(topic.settings).sort((a, b) => (b in own) - (a in own) || a.localeCompare(b));
  fill(body, h("section", { class: "card" },
    h("header", {}, h("h2", {}, "Settings"), !topic.is_internal && button("Configure", () => configureTopic(topic.name))),
    h("div", { class: "table-wrap" }, h("table", { class: "settings" },
      h("thead", {}, h("tr", {}, h("th", {}, "Name"), h("th", {}, "Value"), h("th", {}, "Set by"))),
      h("tbody", {}, names.map((name) => h("tr", {},
        h("td", {}, h("code", {}, name)),
        h("td", { class: "wrap" }, h("code", {}, topic.settings[name]), " ", h("small", {}, explained(name, topic.settings[name]))),
        h("td", {}, name in own ? h("span", { class: "badge good" }, "this topic") : h("span", { class: "soft" }, "the broker")))))))));
}
