// One queue: what waits in it, and its dead letters, which can be looked at, sent back and purged.

import { ask, at, get, query } from "./api.js";
import { choice, dialog, toast } from "./dialog.js";
import { button, empty, fill, h, icon } from "./dom.js";
import { count, plural, span, time } from "./format.js";
import { List } from "./list.js";
import { MessageView, preview } from "./message_view.js";

const PAGE = 100;

export function open(topic, name) {
  const path = `topics/${at(topic)}/subscriptions/${at(name)}`;
  const tiles = h("div", { class: "tiles" });
  const about = h("dl", { class: "facts pairs" });
  const letters = new Letters(topic, name, path);
  const cards = [tiles, h("section", { class: "card" }, about), letters.element];
  const body = h("div", {}, cards);
  const remove = button("Delete", () => deleteQueue(topic, name, path), { kind: "danger" });
  let others = [];

  return {
    title: name,
    view: "queues",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" },
        h("h1", {}, h("a", { class: "crumb", href: "#/queues" }, icon("left"), h("small", {}, "Queues")), h("br"), name),
        remove),
      body),
    rows(table) {
      const queue = table.get(`${topic}/${name}`);
      if (queue && remove.hidden) fill(body, cards);
      remove.hidden = !queue;
      if (!queue) {
        fill(body, empty("There is no queue of this name", "It may have been deleted.", h("a", { href: "#/queues" }, "See all queues")));
        return;
      }
      others = [...table.values()].filter((each) => each.dead_letter_topic === queue.dead_letter_topic && (each.topic !== topic || each.name !== name));
      fill(tiles, [["Backlog", queue.backlog], ["In flight", queue.in_flight], ["For later", queue.delayed], ["To be delivered again", queue.waiting], ["Died so far", queue.dead]].map(([label, number]) =>
        h("div", { class: "tile" }, h("span", {}, label), h("b", {}, count(number)))));
      fill(about, [
        ["Topic", h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic)],
        ["Type", queue.type.replace("_", " ")],
        ["Time to acknowledge", span(Math.round(queue.ack_timeout_ms / 1000))],
        ["Most deliveries", queue.max_deliveries ? count(queue.max_deliveries) : "no limit"],
        ["Dead letters go to", h("a", { href: `#/topics/${encodeURIComponent(queue.dead_letter_topic)}` }, queue.dead_letter_topic)],
        ["Consumers", queue.consumers.length ? queue.consumers.join(", ") : "none that stay connected"],
      ].map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)]));
      letters.know(queue, others);
    },
  };
}

class Letters {
  constructor(topic, name, path) {
    this.topic = topic;
    this.name = name;
    this.path = path;
    this.chosen = new Set();
    this.dead = -1;
    this.messages = [];
    this.turn = 0;
    this.replay = button("Replay chosen", () => this.sendBack([...this.chosen]));
    this.replayAll = button("Replay all", () => this.sendBack(null));
    this.purge = button("Purge", () => this.askPurge(), { kind: "danger" });
    this.more = button("Load more", () => this.load(true));
    this.more.hidden = true;
    this.state = choice([["all", "All letters"], ["outstanding", "Outstanding"], ["replayed", "Replayed"]], "all");
    this.state.setAttribute("aria-label", "Which letters");
    this.state.onchange = () => this.load(false);
    this.counts = h("small", { role: "status" });
    this.list = new List({
      label: "Dead letters",
      open: (row) => this.view(row.message),
      columns: [
        { title: "", size: "24px", cell: (row) => this.box(row) },
        { title: "Letter", size: "90px", narrow: "60px", mono: true, cell: (row) => row.key },
        { title: "State", size: "96px", narrow: "72px", cell: (row) => h("span", { class: row.message.replayed ? "badge good" : "badge warn" }, row.message.replayed ? "replayed" : "outstanding") },
        { title: "Time", size: "196px", wide: true, cell: (row) => time(row.message.timestamp) },
        { title: "Deliveries", size: "80px", number: true, wide: true, cell: (row) => count(row.message.delivery_count) },
        { title: "Reason", size: "minmax(0, 1fr)", cell: (row) => row.message.reason || h("span", { class: "null" }, "none was given") },
        { title: "Value", size: "minmax(0, 1fr)", wide: true, cell: (row) => preview(row.message.value, row.message.encoding) },
      ],
    });
    this.content = h("div", { class: "browser" });
    this.detail = new MessageView({ close: () => this.unview(), step: (by) => this.step(by) });
    this.element = h("section", { class: "stack" },
      h("header", { class: "page-head" }, h("h2", {}, "Dead letters"), this.counts, this.state, this.replay, this.replayAll, this.purge),
      this.content, this.more);
    this.arrange();
  }

  know(queue, others) {
    this.queue = queue;
    this.others = others;
    if (queue.dead !== this.dead) {
      this.dead = queue.dead;
      this.load(false);
    }
  }

  // What was asked for before, and comes later, is of no use any more.
  async load(isMore) {
    const mine = ++this.turn;
    const found = isMore ? [...this.messages] : [];
    const asked = isMore ? Object.entries(this.next) : [[undefined, undefined]];
    const next = {};
    let hasMore = false;
    let counts = isMore ? this.counted : null;
    try {
      for (const [partition, offset] of asked) {
        const told = await get(`${this.path}/dlq?${query({ partition, offset, limit: PAGE, state: this.state.value, counts: isMore ? undefined : true })}`);
        counts = told.counts ?? counts;
        found.push(...told.messages);
        Object.assign(next, told.next_offsets);
        hasMore ||= told.messages.length === PAGE;
      }
    } catch (error) {
      if (mine === this.turn) toast(error.message, "bad");
      return;
    }
    if (mine !== this.turn) return;
    [this.messages, this.next, this.more.hidden, this.counted] = [found, next, !hasMore, counts];
    const there = new Set(found.map((each) => each.message_id));
    for (const each of this.chosen) if (!there.has(each)) this.chosen.delete(each);
    this.arrange();
  }

  arrange() {
    this.replay.disabled = !this.chosen.size;
    const { outstanding = 0, replayed = 0, is_complete: isComplete = true } = this.counted ?? {};
    this.replayAll.disabled = !outstanding;
    this.purge.disabled = !outstanding && !replayed;
    fill(this.counts, outstanding || replayed ? `${isComplete ? "" : "at least "}${count(outstanding)} outstanding, ${count(replayed)} replayed` : "");
    if (!this.messages.length) {
      this.unview();
      const chosen = this.state.value;
      fill(this.content, chosen !== "all" && (outstanding || replayed) ? empty(`No letters are ${chosen}`, "Choose All letters to see the others.") : empty("No dead letters", "A message comes here when it was delivered in vain as often as the queue allows."));
      return;
    }
    if (!this.list.element.isConnected) fill(this.content, this.list.element);
    this.list.show(this.messages.map((message) => ({ key: message.message_id, message })));
  }

  box(row) {
    return h("input", {
      type: "checkbox", "aria-label": `Choose letter ${row.key}`, checked: this.chosen.has(row.key),
      onchange: (event) => {
        this.chosen[event.target.checked ? "add" : "delete"](row.key);
        this.replay.disabled = !this.chosen.size;
      },
    });
  }

  view(message) {
    this.viewed = message;
    this.detail.show(message);
    this.content.classList.add("split");
    this.list.compact(true);
    if (!this.detail.element.isConnected) this.content.append(this.detail.element);
    this.list.select(message.message_id);
  }

  unview() {
    const at = this.list.rows.findIndex((row) => row.key === this.viewed?.message_id);
    this.viewed = null;
    this.detail.element.remove();
    this.content.classList.remove("split");
    this.list.compact(false);
    this.list.select(null);
    if (at >= 0) this.list.focus(at);
  }

  step(by) {
    const at = this.list.rows.findIndex((row) => row.key === this.viewed.message_id);
    const next = at < 0 ? null : this.list.rows[at + by];
    if (next) this.view(next.message);
  }

  sendBack(ids) {
    const again = ids ? this.messages.filter((each) => each.replayed && this.chosen.has(each.message_id)).length : 0;
    dialog({
      title: "Replay dead letters",
      action: "Replay",
      content: [h("p", {}, `${ids ? plural(ids.length, "letter") : "All letters that were not sent back yet"} will be sent to `, h("b", {}, this.topic), " as new messages. All queues and readers of the topic get them."),
        again > 0 && h("p", { class: "notice" }, `${plural(again, "letter")} of these ${again === 1 ? "was" : "were"} replayed before and will be sent again.`)],
      act: async () => {
        const done = await ask("POST", `${this.path}/dlq/replay`, ids ? { message_ids: ids, again: again > 0 } : { limit: 10_000 });
        this.chosen.clear();
        toast(`${plural(done.count, "letter")} sent back${done.failed.length ? `, ${done.failed.length} refused: ${done.failed[0].reason}` : ""}${done.has_more ? "; more remain: replay again to send them" : ""}`, done.failed.length ? "bad" : "good");
        await this.load(false);
      },
    });
  }

  askPurge() {
    const where = this.queue.dead_letter_topic;
    dialog({
      title: "Purge dead letters",
      action: "Purge",
      kind: "danger",
      confirm: where,
      content: [
        h("p", {}, "All messages in ", h("b", {}, where), " are deleted. This cannot be undone."),
        this.others.length > 0 && h("p", { class: "notice" }, `The letters of ${this.others.map((each) => `${each.topic}/${each.name}`).join(", ")} lie there too, and go with them.`),
      ],
      act: async () => {
        await ask("DELETE", `topics/${at(where)}/messages`);
        toast("Dead letters are purged");
        await this.load(false);
      },
    });
  }
}

function deleteQueue(topic, name, path) {
  dialog({
    title: "Delete queue",
    action: "Delete queue",
    kind: "danger",
    confirm: name,
    content: h("p", {}, "The queue ", h("b", {}, name), " forgets which messages are done. The messages of ", h("b", {}, topic), " and the dead letters stay."),
    async act() {
      await ask("DELETE", path);
      toast(`Queue ${name} is deleted`);
      location.hash = "#/queues";
    },
  });
}
