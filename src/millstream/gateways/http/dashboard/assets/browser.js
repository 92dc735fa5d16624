// Messages of a topic: read from either end, from an offset or a time, searched, and followed live.

import { at } from "./api.js";
import { choice, toast } from "./dialog.js";
import { button, code, empty, fill, h } from "./dom.js";
import { count, time } from "./format.js";
import { List } from "./list.js";
import { MessageView, preview } from "./message_view.js";
import { Pager } from "./pager.js";

const KEPT = ["where", "from", "offset", "time", "text", "key"];
const MOST_TAILED = 500;
const TOO_FAST = 2000;

export class Browser {
  constructor(topic, partitions, send) {
    this.topic = topic;
    this.partitions = partitions;
    this.send = send;
    this.messages = [];
    this.isTailing = false;
    this.where = choice([["", "All partitions"], ...Array.from({ length: partitions }, (_, n) => [String(n), `Partition ${n}`])], partitions === 1 ? "0" : "");
    this.where.setAttribute("aria-label", "Partition");
    this.where.hidden = partitions === 1;
    this.from = choice([["newest", "Newest first"], ["oldest", "Oldest first"], ["offset", "From offset…"], ["time", "From time…"]]);
    this.from.setAttribute("aria-label", "Where to begin");
    this.offset = h("input", { type: "number", min: 0, placeholder: "Offset", "aria-label": "Offset", hidden: true });
    this.time = h("input", { type: "datetime-local", step: "1", "aria-label": "Time", hidden: true });
    this.text = h("input", { type: "search", class: "grow", placeholder: "Search in values, keys and headers  ( / )", "aria-label": "Search in messages" });
    this.key = h("input", { type: "text", class: "some", placeholder: "Key, exactly", "aria-label": "Key, exactly", spellcheck: "false" });
    this.tailButton = button("Live tail", () => (this.isTailing ? this.untail() : this.tail()), { icon: "play" });
    this.status = h("span", { role: "status" });
    this.stop = button("Stop", () => this.abort?.abort(), {});
    this.stop.hidden = true;
    this.pause = button("Pause", () => this.togglePause(), { icon: "pause" });
    this.pause.hidden = true;
    this.before = button("Previous page", () => this.page(this.pager.number - 1), { icon: "left", square: true });
    this.after = button("Next page", () => this.page(this.pager.number + 1), { icon: "right", square: true });
    this.newer = button("Show newer", () => this.search(), {});
    this.newer.hidden = true;
    this.progress = h("div", { class: "progress", role: "progressbar", "aria-label": "Search", "aria-valuemin": "0", "aria-valuemax": "100", hidden: true }, h("i", {}));
    this.list = new List({
      label: "Messages",
      open: (row) => this.view(row),
      columns: [
        { title: "Offset", size: "118px", narrow: "82px", mono: true, cell: (row) => row.key },
        { title: "Time", size: "196px", wide: true, cell: (row) => time(row.message.timestamp) },
        { title: "Key", size: "minmax(60px, 160px)", narrow: "70px", cell: (row) => preview(row.message.key, row.message.key_encoding) },
        { title: "Value", size: "minmax(0, 1fr)", cell: (row) => preview(row.message.value, row.message.encoding) },
      ],
    });
    this.list.columns.forEach((each) => { delete each.sort; });
    this.content = h("div", {}, this.list.element);
    this.detail = new MessageView({ close: () => this.unview(), step: (by) => this.step(by) });
    this.split = h("div", { class: "browser" }, this.content);
    this.element = h("div", { class: "stack" },
      h("form", { class: "toolbar", onsubmit: (event) => { event.preventDefault(); if (this.isTailing) this.tail(); else this.search(); } },
        this.where, this.from, this.offset, this.time, this.text, this.key,
        h("button", { type: "submit" }, "Search"), this.tailButton),
      this.progress,
      h("div", { class: "status-line" }, this.status, this.newer, this.stop, this.pause, this.before, this.after),
      this.split);
    this.from.addEventListener("change", () => this.chooseFrom());
    this.where.addEventListener("change", () => (this.isTailing ? this.tail() : this.search()));
    this.restore();
    this.search();
  }

  // Where it stands is kept in the address, for who loads the page again or hands it on.
  restore() {
    const kept = new URLSearchParams(location.hash.split("?")[1] ?? "");
    for (const name of KEPT) {
      if (kept.has(name)) this[name].value = kept.get(name);
    }
    // What is none of the choices.
    if (this.where.selectedIndex < 0) this.where.selectedIndex = 0;
    if (this.from.selectedIndex < 0) this.from.selectedIndex = 0;
    this.arrange();
  }

  remember() {
    const kept = new URLSearchParams();
    for (const name of KEPT) {
      const isShown = !this[name].hidden && this[name].value !== "" && this[name].value !== "newest";
      if (isShown) kept.set(name, this[name].value);
    }
    const address = location.hash.split("?")[0];
    window.history.replaceState(null, "", kept.size ? `${address}?${kept}` : address || "#/");
  }

  know(topic) {
    this.countNewer(topic.details);
    if (topic.partitions === this.partitions) return;
    for (let n = this.partitions; n < topic.partitions; n += 1) this.where.append(h("option", { value: String(n) }, `Partition ${n}`));
    this.partitions = topic.partitions;
    this.where.hidden = false;
  }

  countNewer(details) {
    this.details = details;
    const { pager } = this;
    const isNewest = !this.isTailing && pager.number === 0 && !pager.isSearch && this.from.value === "newest" && pager.ends.size > 0;
    const number = isNewest ? details.reduce((sum, each) => sum + Math.max(each.stable_offset - (pager.ends.get(each.partition) ?? each.stable_offset), 0), 0) : 0;
    this.newer.hidden = number === 0;
    if (number && !this.messages.length) this.search();
  }

  // One was sent from this page: who looks at the newest sees it.
  sent() {
    if (!this.isTailing && this.from.value === "newest" && !this.pager.isSearch && !this.viewed) this.search();
  }

  close() {
    this.abort?.abort();
    this.untail({ isQuiet: true });
  }

  arrange() {
    this.offset.hidden = this.from.value !== "offset";
    this.time.hidden = this.from.value !== "time";
  }

  chooseFrom() {
    this.arrange();
    if (this.from.value === "offset") {
      if (!this.where.value) this.where.value = "0";
      this.offset.focus();
    } else if (this.from.value === "time") {
      if (!this.time.value) this.time.value = new Date(Date.now() - 3_600_000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
      this.time.focus();
    } else {
      this.search();
    }
  }

  async search() {
    this.untail({ isQuiet: true });
    if (this.from.value === "offset" && !this.where.value) this.where.value = "0";
    this.remember();
    this.pager = new Pager({
      topic: this.topic,
      partitions: this.partitions,
      partition: this.where.value === "" ? null : Number(this.where.value),
      order: this.from.value === "newest" ? "newest" : "oldest",
      offset: this.from.value === "offset" && this.offset.value ? Number(this.offset.value) : null,
      timestamp: this.from.value === "time" && this.time.value ? new Date(this.time.value).getTime() : null,
      text: this.text.value,
      key: this.key.value,
    });
    await this.page(0);
  }

  async page(number) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    const pager = this.pager;
    this.unview();
    this.newer.hidden = true;
    this.stop.hidden = !pager.isSearch;
    this.progress.hidden = !pager.isSearch;
    if (pager.isSearch) this.show([]);
    this.status.textContent = pager.isSearch ? "Searching…" : "";
    let found = [];
    let scan = null;
    try {
      found = await pager.load(number, (messages, scanned, total) => {
        scan = { scanned, total };
        found = messages;
        const share = total ? Math.min(scanned / total, 1) : 1;
        this.progress.firstChild.style.width = `${share * 100}%`;
        this.progress.setAttribute("aria-valuenow", Math.round(share * 100));
        this.status.textContent = `${count(messages.length)} found, ${count(scanned)} of ${count(total)} messages looked at`;
        this.show([...messages]);
      }, abort.signal);
    } catch (error) {
      if (abort !== this.abort) return;
      if (error.name !== "AbortError") {
        fill(this.content, h("p", { class: "problem" }, error.message));
        this.status.textContent = "";
        this.stop.hidden = this.progress.hidden = true;
        return;
      }
      this.status.textContent = `Stopped: ${count(found.length)} found, ${count(scan?.scanned ?? 0)} of ${count(scan?.total ?? 0)} messages looked at`;
    }
    if (abort !== this.abort) return;
    this.stop.hidden = this.progress.hidden = true;
    this.before.disabled = !pager.hasBefore;
    this.after.disabled = !pager.hasAfter;
    this.show(found);
    if (!pager.isSearch) this.status.textContent = found.length ? `Page ${number + 1}` : "";
    if (!found.length) this.showEmpty(pager);
    if (this.details) this.countNewer(this.details);
  }

  showEmpty(pager) {
    if (pager.isSearch) {
      fill(this.content, empty("No message holds that", "Letters match in both cases. A key has to be the whole key, in its own case."));
    } else if (pager.number || this.from.value !== "newest") {
      fill(this.content, empty("There are no messages from there on", "Read from the newest on, or choose another place."));
    } else {
      fill(this.content, empty("No messages yet", "Send the first one here, or from anywhere:",
        code(`curl ${location.origin}/topics/${at(this.topic)}/messages --json '{"value": "hello"}'`),
        button("Send message", () => this.send(), { kind: "primary", icon: "plus" })));
    }
  }

  show(messages) {
    this.messages = messages;
    if (!this.list.element.isConnected || this.list.element.parentNode !== this.content) fill(this.content, this.list.element);
    this.list.show(messages.map((message) => ({ key: this.partitions === 1 ? String(message.offset) : `${message.partition}:${message.offset}`, message })));
  }

  view(row) {
    this.viewed = row.key;
    this.detail.show(row.message, { text: this.text.value });
    this.split.classList.add("split");
    this.list.compact(true);
    if (!this.detail.element.isConnected) this.split.append(this.detail.element);
    this.list.select(row.key);
  }

  unview() {
    if (!this.viewed) return;
    const at = this.list.rows.findIndex((row) => row.key === this.viewed);
    this.viewed = null;
    this.detail.element.remove();
    this.split.classList.remove("split");
    this.list.compact(false);
    this.list.select(null);
    if (at >= 0) this.list.focus(at);
  }

  step(by) {
    const rows = this.list.rows;
    const next = rows[rows.findIndex((row) => row.key === this.viewed) + by];
    if (next) this.view(next);
  }

  // The live tail

  tail() {
    this.untail({ isQuiet: true });
    this.abort?.abort();
    this.abort = null;
    this.unview();
    this.isTailing = true;
    this.isPaused = false;
    this.waiting = [];
    this.seen = 0;
    this.came = 0;
    this.passed = 0;
    this.seenAtPause = 0;
    this.remember();
    this.newer.hidden = true;
    fill(this.tailButton, h("span", {}, "End tail"));
    this.pause.hidden = false;
    this.stop.hidden = this.progress.hidden = true;
    this.before.disabled = this.after.disabled = true;
    this.showPause();
    this.show([]);
    this.listen();
    this.timer = setInterval(() => this.drain(), 250);
    this.drain();
  }

  listen() {
    const partition = this.where.value === "" ? "" : `&partition=${this.where.value}`;
    this.stream = new EventSource(`topics/${at(this.topic)}/stream?from=latest${partition}`);
    this.stream.addEventListener("message", (event) => {
      this.came += 1;
      const message = JSON.parse(event.data);
      if (!holds(message, this.text.value, this.key.value)) {
        this.passed += 1;
        if (this.came > TOO_FAST) this.rest();
        return;
      }
      this.seen += 1;
      this.waiting.push(message);
      if (this.waiting.length > MOST_TAILED) this.waiting.splice(0, this.waiting.length - MOST_TAILED);
      if (this.came > TOO_FAST) this.rest();
    });
    this.stream.addEventListener("error", (event) => {
      if (event.data) toast(JSON.parse(event.data).detail, "bad");
      if (event.data || event.target.readyState === EventSource.CLOSED) this.untail();
    });
  }

  // More comes than anybody can read: look again in a moment, at what is newest then.
  rest() {
    this.stream.close();
    this.isFast = true;
    this.pauseTimer = setTimeout(() => { this.came = 0; this.listen(); }, 1500);
  }

  drain() {
    if (!this.isPaused && this.waiting.length) {
      const next = [...this.waiting.reverse(), ...this.messages].slice(0, MOST_TAILED);
      this.waiting = [];
      this.show(next);
    }
    if (this.waiting.length === 0 || this.isPaused) this.came = Math.max(this.came - TOO_FAST / 8, 0);
    const words = this.isPaused ? `Paused, ${count(this.seen - this.seenAtPause)} more came` : this.messages.length ? `Live: ${count(this.seen)} so far` : "Live: waiting for the next message";
    const isFiltered = Boolean(this.text.value || this.key.value);
    const others = isFiltered ? `, of ${count(this.seen + this.passed)} that came` : "";
    this.status.textContent = this.isFast ? `${words}${others}. More came than can be shown: some are left out` : `${words}${others}`;
  }

  togglePause() {
    this.isPaused = !this.isPaused;
    this.seenAtPause = this.seen;
    this.showPause();
    this.drain();
  }

  showPause() {
    fill(this.pause, h("span", {}, this.isPaused ? "Go on" : "Pause"));
    this.pause.setAttribute("aria-pressed", String(this.isPaused));
  }

  untail({ isQuiet = false } = {}) {
    if (!this.isTailing) return;
    this.isTailing = this.isFast = false;
    this.stream.close();
    clearInterval(this.timer);
    clearTimeout(this.pauseTimer);
    this.pause.hidden = true;
    fill(this.tailButton, h("span", {}, "Live tail"));
    if (!isQuiet) this.search();
  }
}

// As the search does it: letters match in both cases, a key has to be the whole key.
function holds(message, text, key) {
  if (key && message.key !== key) return false;
  if (!text) return true;
  const wanted = lower(text);
  const parts = [plain(message.value, message.encoding), plain(message.key, message.key_encoding)];
  for (const [name, value] of Object.entries(message.headers ?? {})) {
    parts.push(name);
    for (const each of Array.isArray(value) ? value : [value]) parts.push(typeof each === "object" && each ? plain(each.base64, "base64") : each);
  }
  return parts.some((each) => each !== null && each !== undefined && lower(String(each)).includes(wanted));
}

function lower(text) { return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase()); }

// Bytes that are no text are compared as the bytes that they are.
function plain(data, encoding) { return encoding === "base64" && data ? new TextDecoder().decode(Uint8Array.from(atob(data), (each) => each.charCodeAt(0))) : data; }
