// How the broker is doing right now.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { button, code, fill, h, icon, setText } from "./dom.js";
import { bytes, count, milliseconds, percent, plural, short } from "./format.js";
import { createTopic } from "./topic_dialogs.js";

export function open() {
  const health = h("div", { class: "health", role: "status" });
  const tiles = {
    in: tile("Messages in"), out: tile("Messages out"), produce: tile("Kafka produce, p99"),
    loop: tile("Loop delay, p99"), disk: tile("Data stored"), memory: tile("Memory"),
  };
  const charts = [
    new Chart({ title: "Messages per second", format: short, least: 10, series: [
      { label: "in", color: "first", value: (p) => p.messages_in },
      { label: "out", color: "second", value: (p) => p.messages_out }] }),
    new Chart({ title: "Bytes per second", format: bytes, least: 1000, series: [
      { label: "in", color: "first", value: (p) => p.bytes_in },
      { label: "out", color: "second", value: (p) => p.bytes_out }] }),
    new Chart({ title: "Kafka produce latency", format: milliseconds, least: 1, series: [
      { label: "p99", color: "first", value: (p) => p.produce?.[1] },
      { label: "p50", color: "second", value: (p) => p.produce?.[0] }] }),
    new Chart({ title: "Event loop and disk", format: milliseconds, least: 1, series: [
      { label: "loop delay p99", color: "first", value: (p) => p.loop_delay?.[1] },
      { label: "fsync p99", color: "second", value: (p) => p.fsync?.[1] }] }),
  ];
  const busiest = h("div", { class: "busiest" });
  const facts = h("dl", { class: "facts" });
  const storage = h("div", {});
  const lower = h("div", { class: "grid lower" },
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Busiest topics"), h("a", { href: "#/topics" }, "All topics")), busiest),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Broker")), storage, facts));
  const body = h("div", {});
  const element = h("div", { class: "page" },
    h("header", { class: "page-head" }, h("h1", {}, "Overview"), health), body);
  let known = {};
  let isEmpty = null;
  get("api/facts").then((told) => { known = told; }, () => {});

  function arrange(topics) {
    if (isEmpty === (topics === 0)) return;
    isEmpty = topics === 0;
    fill(body,
      h("div", { class: "tiles" }, Object.values(tiles).map((each) => each.element)),
      isEmpty && welcome(),
      h("div", { class: "grid" }, charts.map((each) => each.element)), lower);
  }
  arrange(1);

  return {
    title: "Overview",
    element,
    view: "overview",
    rows(table) {
      const now = Object.fromEntries(table);
      arrange(now.topics);
      showHealth(health, now.troubles);
      tiles.disk.set(bytes(now.size_bytes), now.disk ? `${bytes(now.disk[1])} free` : "in memory");
      fill(storage, now.disk && room(...now.disk));
      fill(busiest, now.busiest.length ? topicLines(now.busiest) : h("p", { class: "soft" }, "No topics yet."));
      fill(facts, factLines(now, known));
    },
    pulse(now, history) {
      tiles.in.set(rate(now.messages_in), now.bytes_in === undefined ? "" : `${bytes(now.bytes_in)}/s`);
      tiles.out.set(rate(now.messages_out), now.bytes_out === undefined ? "" : `${bytes(now.bytes_out)}/s`);
      tiles.produce.set(milliseconds(now.produce?.[1]), now.produce ? `p50 ${milliseconds(now.produce[0])}` : "nothing is sent");
      tiles.loop.set(milliseconds(now.loop_delay?.[1]), now.cpu === undefined ? "" : `${percent(now.cpu)} of a core`);
      tiles.memory.set(bytes(now.memory_bytes), now.requests === undefined ? "" : `${count(now.requests)} requests/s`);
      for (const each of charts) each.show(history);
    },
    problem(problem) { showHealth(health, [problem.detail]); },
    lost() { showHealth(health, ["The broker does not answer"]); },
  };
}

function tile(label) {
  const value = h("b", {}, "–");
  const note = h("small", {}, "\u00a0");
  return {
    element: h("div", { class: "tile" }, h("span", {}, label), value, note),
    set(text, more) { setText(value, text); setText(note, more || "\u00a0"); },
  };
}

const rate = (number) => (number === undefined ? "–" : `${short(number)}/s`);

function showHealth(element, troubles) {
  const isGood = !troubles.length;
  element.dataset.state = isGood ? "good" : "bad";
  const words = isGood ? "All is well" : plural(troubles.length, "problem");
  fill(element, icon(isGood ? "check" : "warn"), h("span", {}, words),
    !isGood && h("ul", {}, troubles.map((each) => h("li", {}, each))));
}

function topicLines(lines) {
  const most = Math.max(1, ...lines.map(([, each]) => each));
  return lines.map(([name, each, messages, size]) =>
    h("a", { class: "busy", href: `#/topics/${encodeURIComponent(name)}` },
      h("span", { class: "name" }, name),
      h("span", { class: "number" }, each ? `${short(each)}/s` : "quiet"),
      h("small", {}, `${plural(messages, "message")} · ${bytes(size)}`),
      h("i", { style: { width: `${(each / most) * 100}%` } })));
}

function room(total, free) {
  const share = (total - free) / total;
  return [h("p", { class: "soft" }, `${bytes(free)} of ${bytes(total)} are free on the disk`), bar(share, `The disk is ${percent(share)} full`)];
}

function bar(share, label) {
  return h("div", { class: "bar", role: "img", "aria-label": label, title: label },
    h("i", { class: share > 0.9 ? "bad" : share > 0.8 ? "warn" : undefined, style: { width: `${share * 100}%` } }));
}

function factLines(now, known) {
  const doors = Object.entries(now.connections).map(([door, number]) => `${number} ${door}`).join(", ");
  return [
    ["Topics", h("a", { href: "#/topics" }, `${plural(now.topics, "topic")}, ${plural(now.partitions, "partition")}`)],
    ["Messages", count(now.messages)],
    ["Groups", h("a", { href: "#/groups" }, count(now.groups))],
    ["Queues", h("a", { href: "#/queues" }, count(now.queues))],
    ["Connections", h("a", { href: "#/connections" }, doors || "none")],
    ["Data", h("span", { class: "mono" }, known.data_dir ?? "")],
    ["Version", known.version ?? ""],
  ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

function welcome() {
  const url = location.origin;
  return h("section", { class: "card welcome" },
    h("h2", {}, "The broker runs, and has no topics yet"),
    h("p", {}, "Send a first message, and its topic is created with it:"),
    code(`curl ${url}/topics/greetings/messages --json '{"value": "hello", "key": "en"}'`),
    h("p", {}, "Or create a topic with settings of your own."),
    button("Create topic", () => createTopic(), { kind: "primary", icon: "plus" }));
}
