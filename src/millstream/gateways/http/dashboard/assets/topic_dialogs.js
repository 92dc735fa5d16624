// Creating, configuring and deleting topics, and sending messages to them.

import { ask, at, get } from "./api.js";
import { choice, dialog, field, toast } from "./dialog.js";
import { button, fill, h } from "./dom.js";
import { explained } from "./format.js";

let known = null;

async function topicSettings() {
  known ??= (await get("api/topic-settings")).settings;
  return known;
}

export async function createTopic(done = (name) => { location.hash = `#/topics/${encodeURIComponent(name)}`; }) {
  const settings = new SettingLines(await topicSettings(), {});
  const name = h("input", { type: "text", required: true, maxlength: 249, autocomplete: "off", spellcheck: "false", placeholder: "orders" });
  const partitions = h("input", { type: "number", min: 1, max: 1000, placeholder: "as the broker is set" });
  dialog({
    title: "Create topic",
    action: "Create topic",
    wide: true,
    content: [
      h("div", { class: "pair" },
        field("Name", name, "Letters, digits, dots, dashes and underscores"),
        field("Partitions", partitions, "More can be added later, never fewer")),
      settings.element,
    ],
    async act() {
      const wanted = { name: name.value.trim(), settings: settings.changed() };
      if (partitions.value) wanted.partitions = Number(partitions.value);
      await ask("POST", "topics", wanted);
      toast(`Topic ${wanted.name} is created`);
      done(wanted.name);
    },
  });
}

export async function configureTopic(topic) {
  const [all, now] = await Promise.all([topicSettings(), get(`topics/${at(topic)}`)]);
  const settings = new SettingLines(all, now.own_settings);
  const partitions = h("input", { type: "number", min: now.partitions, max: 1000, value: String(now.partitions) });
  dialog({
    title: `Configure ${topic}`,
    action: "Save",
    wide: true,
    content: [field("Partitions", partitions, "Only ever more: messages with a key may go to other partitions then"), settings.element],
    async act() {
      const change = { settings: settings.changed() };
      if (Number(partitions.value) !== now.partitions) change.partitions = Number(partitions.value);
      if (!Object.keys(change.settings).length && !change.partitions) throw new Error("Nothing was changed.");
      await ask("PATCH", `topics/${at(topic)}`, change);
      toast(`Topic ${topic} is changed`);
    },
  });
}

export function deleteTopic(topic, messages) {
  dialog({
    title: "Delete topic",
    action: "Delete topic",
    kind: "danger",
    confirm: topic,
    content: h("p", {}, "The topic ", h("b", {}, topic), ` goes with its ${messages}, its queues and the offsets of its groups. This cannot be undone.`),
    async act() {
      await ask("DELETE", `topics/${at(topic)}`);
      toast(`Topic ${topic} is deleted`);
      location.hash = "#/topics";
    },
  });
}

export function sendMessage(topic, partitions, sent = () => {}) {
  const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "none" });
  const value = h("textarea", { rows: 8, spellcheck: "false", placeholder: '{"hello": "world"}' });
  const headers = h("textarea", { rows: 2, spellcheck: "false", placeholder: "source: dashboard" });
  const where = choice([["", "By the key, else in turn"], ...Array.from({ length: partitions }, (_, n) => [String(n), `Partition ${n}`])]);
  const kind = choice([["text", "As text"], ["base64", "From base64"], ["null", "None: deletes its key in a compacted topic"]]);
  kind.addEventListener("change", () => { value.disabled = kind.value === "null"; });
  dialog({
    title: `Send to ${topic}`,
    action: "Send",
    wide: true,
    content: [
      field("Value", value),
      h("div", { class: "pair" }, field("Value is sent", kind), field("Partition", where)),
      field("Key", key),
      field("Headers", headers, "A line for each: NAME: VALUE"),
    ],
    async act() {
      const isPacked = kind.value === "base64";
      const message = { value: kind.value === "null" ? null : value.value };
      if (isPacked) message.encoding = "base64";
      if (key.value) message.key = isPacked ? btoa(unescape(encodeURIComponent(key.value))) : key.value;
      if (where.value) message.partition = Number(where.value);
      const named = headersOf(headers.value);
      if (Object.keys(named).length) message.headers = named;
      const { partition, offset } = await ask("POST", `topics/${at(topic)}/messages`, message);
      toast(`Stored in partition ${partition} at offset ${offset}`);
      sent();
    },
  });
}

function headersOf(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`Header ${JSON.stringify(line.trim())} has no name: expected NAME: VALUE`);
    const name = line.slice(0, colon).trim();
    found.set(name, [...(found.get(name) ?? []), line.slice(colon + 1).trim()]);
  }
  return Object.fromEntries(found);
}

// Settings that a topic has for itself: lines that can be added, changed and taken back.
class SettingLines {
  constructor(all, own) {
    this.all = all;
    this.own = own;
    this.lines = new Map();
    this.list = h("div", { class: "field" });
    this.add = choice([["", "Add a setting…"], ...all.map((each) => [each.name, each.name])]);
    this.add.setAttribute("aria-label", "Add a setting");
    this.add.addEventListener("change", () => {
      if (this.add.value) this.show(this.add.value, "").focus();
      this.add.value = "";
    });
    this.element = h("div", { class: "field" }, h("span", {}, "Settings"), this.list, this.add,
      h("small", {}, "What is not set here is as the broker has it."));
    for (const [name, value] of Object.entries(own)) this.show(name, value);
  }

  show(name, value) {
    if (this.lines.has(name)) return this.lines.get(name);
    const about = this.all.find((each) => each.name === name) ?? { value: "", doc: "", expected: "" };
    const input = h("input", { type: "text", value, placeholder: about.value, "aria-label": name, spellcheck: "false", autocomplete: "off" });
    const hint = h("small", {}, about.doc);
    input.addEventListener("input", () => fill(hint, explained(name, input.value) || about.doc));
    input.title = `Expected: ${about.expected}`;
    const line = h("div", { class: "setting-line" },
      h("div", {}, h("code", {}, name), h("br"), hint), input,
      button("Take back", () => { line.remove(); this.lines.delete(name); }, { kind: "ghost", icon: "close", square: true }));
    this.lines.set(name, input);
    this.list.append(line);
    return input;
  }

  changed() {
    const found = {};
    for (const [name, input] of this.lines) {
      if (input.value !== (this.own[name] ?? "")) found[name] = input.value;
    }
    for (const name of Object.keys(this.own)) if (!this.lines.has(name)) found[name] = null;
    return found;
  }
}
