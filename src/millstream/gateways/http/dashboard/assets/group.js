// One consumer group: its members and what each reads, its lag over time, and how to move it.

import { ask, at } from "./api.js";
import { Chart } from "./chart.js";
import { choice, dialog, field, toast } from "./dialog.js";
import { button, empty, fill, h, icon } from "./dom.js";
import { count, plural, short } from "./format.js";
import { stateBadge } from "./groups.js";

const MOST_CHIPS = 12;
const MOST_POINTS = 300;
const EVERY_MS = 1800;

export function open(name) {
  const chips = h("div", { class: "chips" });
  const members = h("div", {});
  const offsets = h("div", { class: "table-wrap" });
  const reset = button("Reset offsets", () => resetOffsets(name, group));
  const remove = button("Delete", () => deleteGroup(name), { kind: "danger" });
  const chart = new Chart({ title: "Lag", format: short, least: 10, windowMs: 300_000, series: [{ label: "messages behind", color: "first", value: (p) => p.lag }] });
  const points = [];
  const cards = [chart.element,
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Members")), members),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Offsets")), offsets)];
  const body = h("div", {}, cards);
  const why = h("p", { class: "notice", hidden: true }, "A group with members is moved by them alone. To reset its offsets or delete it, stop its members first.");
  let group = null;

  return {
    title: name,
    view: "group",
    name,
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, h("a", { class: "crumb", href: "#/groups" }, icon("left"), h("small", {}, "Groups")), h("br"), name), reset, remove),
      chips, why, body),
    rows(table) {
      if (!group) fill(body, cards);
      group = Object.fromEntries([...table].filter(([key]) => !key.startsWith("offset/")));
      group.offsets = [...table].filter(([key]) => key.startsWith("offset/")).map(([, each]) => each)
        .sort((a, b) => a.topic.localeCompare(b.topic) || a.partition - b.partition);
      const hasMembers = group.members.length > 0;
      reset.disabled = remove.disabled = hasMembers;
      why.hidden = !hasMembers;
      fill(chips, stateBadge(group.state), h("span", { class: "badge" }, `${group.type} protocol`), h("span", { class: "badge" }, plural(group.members.length, "member")), h("span", { class: "badge" }, `${count(group.lag)} behind`));
      showMembers(members, group.members);
      showOffsets(offsets, group.offsets);
    },
    pulse(now) {
      if (!group || now.at - (points.at(-1)?.at ?? 0) < EVERY_MS) return;
      points.push({ at: now.at, lag: group.lag });
      if (points.length > MOST_POINTS) points.shift();
      chart.show(points);
    },
    problem(problem) {
      group = null;
      reset.disabled = remove.disabled = why.hidden = true;
      fill(chips);
      fill(body, problem.status === 404
        ? empty("There is no group of this name", "It may have been deleted, or forgotten because nobody used it.", h("a", { href: "#/groups" }, "See all groups"))
        : h("p", { class: "problem" }, problem.detail));
    },
  };
}

function showMembers(element, members) {
  fill(element, members.length
    ? h("div", { class: "table-wrap" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Client"), h("th", {}, "Host"), h("th", {}, "Reads"))),
      h("tbody", {}, members.map((each) => h("tr", {},
        h("td", { class: "wrap" }, h("span", { class: "strong" }, each.client_id || "unnamed"), h("br"), h("small", { class: "mono" }, each.instance_id ?? each.member_id)),
        h("td", {}, each.client_host.replace(/^\//, "")),
        h("td", {}, h("div", { class: "chips" }, assignmentChips(each.assignments))))))))
    : h("p", { class: "soft" }, "Nobody reads for this group now. Its offsets wait for who comes next."));
}

function assignmentChips(assignments) {
  if (!assignments.length) return h("span", { class: "soft" }, "nothing");
  const chips = assignments.map(({ topic, partitions }) => h("span", { class: "badge second" }, `${topic} ${ranges(partitions)}`));
  return chips.length > MOST_CHIPS ? [chips.slice(0, MOST_CHIPS), h("span", { class: "badge" }, `and ${chips.length - MOST_CHIPS} more`)] : chips;
}

function ranges(numbers) {
  const found = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ");
}

function showOffsets(element, offsets) {
  fill(element, offsets.length
    ? h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Topic"), h("th", { class: "number" }, "Partition"), h("th", { class: "number" }, "Committed"), h("th", { class: "number" }, "End"), h("th", { class: "number" }, "Lag"))),
      h("tbody", {}, offsets.map((each) => h("tr", {},
        h("td", { class: "wrap" }, h("a", { href: `#/topics/${encodeURIComponent(each.topic)}` }, each.topic)),
        h("td", { class: "number" }, String(each.partition)),
        h("td", { class: "number" }, each.never_read && each.lag ? h("span", { class: "soft" }, "never read") : count(each.offset)),
        h("td", { class: "number" }, count(each.end_offset)),
        h("td", { class: "number" }, count(each.lag))))))
    : h("p", { class: "soft" }, "Nothing is committed yet."));
}

function resetOffsets(name, group) {
  const topics = [...new Set(group.offsets.map((each) => each.topic))];
  const topic = topics.length ? choice(topics.map((each) => [each, each])) : h("input", { type: "text" });
  const to = choice([["earliest", "The first message"], ["latest", "The end: only what comes from now on"], ["offset", "An offset"], ["timestamp", "A time"]]);
  const offset = h("input", { type: "number", min: 0, value: "0" });
  const time = h("input", { type: "datetime-local", step: "1" });
  const offsetField = field("Offset", offset, "In every partition of the topic");
  const timeField = field("Time", time, "The first message at or after it");
  const arrange = () => { offsetField.hidden = to.value !== "offset"; timeField.hidden = to.value !== "timestamp"; };
  to.addEventListener("change", arrange);
  arrange();
  dialog({
    title: `Reset offsets of ${name}`,
    action: "Reset offsets",
    content: [field("Topic", topic), field("Read on from", to), offsetField, timeField],
    async act() {
      const wanted = { topic: topic.value, to: to.value };
      if (to.value === "offset") wanted.offset = Number(offset.value);
      if (to.value === "timestamp") {
        if (!time.value) throw new Error("Say which time.");
        wanted.timestamp = new Date(time.value).getTime();
      }
      await ask("POST", `groups/${at(name)}/reset`, wanted);
      toast(`Offsets of ${name} are reset`);
    },
  });
}

function deleteGroup(name) {
  dialog({
    title: "Delete group",
    action: "Delete group",
    kind: "danger",
    confirm: name,
    content: h("p", {}, "The group ", h("b", {}, name), " forgets how far it has read. Messages stay."),
    async act() {
      await ask("DELETE", `groups/${at(name)}`);
      toast(`Group ${name} is deleted`);
      location.hash = "#/groups";
    },
  });
}
