// One message: its value as JSON, text or bytes, its key and headers, and ways to copy them.

import { button, copy, fill, h } from "./dom.js";
import { bytes, count, time } from "./format.js";

const PREVIEW = 300;
const SHOWN = 100_000;
const SHOWN_BYTES = 4096;
const SHOWN_SHORT = 2000;
const MOST_HEADERS = 200;
const MOST_TOKENS = 20_000;
const DEEPEST = 40;

export function preview(text, encoding) {
  if (text === null || text === undefined) return h("span", { class: "null" }, "none");
  if (encoding === "base64") return h("span", { class: "mono" }, hexBytes(unpacked(text.slice(0, 64))).slice(0, 71), text.length > 32 && " …");
  if (text === "") return h("span", { class: "null" }, "empty");
  return h("span", { class: "mono" }, text.slice(0, PREVIEW));
}

export class MessageView {
  constructor({ close, step }) {
    this.close = close;
    this.step = step;
    this.kind = null;
    this.element = h("section", { class: "card message", tabindex: "-1", "aria-label": "Message" });
    this.element.addEventListener("keydown", (event) => {
      if (event.target.closest("input, textarea, select")) return;
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) { event.preventDefault(); step(by); }
      if (event.key === "Escape") { event.preventDefault(); close(); }
    });
  }

  show(message, { text = "" } = {}) {
    this.message = message;
    this.wanted = text;
    const isBinary = message.encoding === "base64";
    const kinds = message.value === null ? [] : isBinary ? ["Hex", "Base64"] : isJson(message.value) ? ["JSON", "Text", "Hex"] : ["Text", "Hex"];
    const kind = kinds.includes(this.kind) ? this.kind : kinds[0];
    const value = h("pre", { class: "value", tabindex: "0" });
    const choose = h("div", { class: "segmented", role: "group", "aria-label": "Show the value as" }, kinds.map((each) => h("button", {
      type: "button", "aria-pressed": String(each === kind), onclick: () => { this.kind = each; this.show(message, { text }); this.element.focus(); },
    }, each)));
    this.showValue(value, kind);
    fill(this.element,
      h("header", {},
        h("h2", {}, `Partition ${message.partition}, offset ${count(message.offset)}`),
        h("div", { class: "chips" },
          button("Message before", () => this.step(-1), { kind: "ghost", icon: "left", square: true }),
          button("Message after", () => this.step(1), { kind: "ghost", icon: "right", square: true }),
          button("Close", () => this.close(), { kind: "ghost", icon: "close", square: true }))),
      h("dl", { class: "facts" },
        h("dt", {}, "Time"), h("dd", {}, time(message.timestamp)),
        h("dt", {}, "Key"), h("dd", {}, shown(message.key, message.key_encoding)),
        h("dt", {}, "Size"), h("dd", {}, bytes(sizeOf(message)))),
      h("h3", {}, "Value", h("span", { class: "end" }, choose, message.value !== null && button("Copy the value", () => copy(message.value), { kind: "ghost", icon: "copy", square: true }))),
      value,
      h("h3", {}, "Headers", h("span", { class: "end" }, button("Copy the message as JSON", () => copy(JSON.stringify(message, null, 2)), { kind: "ghost" }))),
      headerTable(message.headers));
    if (!this.element.contains(document.activeElement)) requestAnimationFrame(() => this.element.focus({ preventScroll: true }));
  }

  showValue(element, kind) {
    const { value, encoding } = this.message;
    element.classList.toggle("hex", kind === "Hex");
    if (value === null) fill(element, h("span", { class: "null" }, "none: this deletes its key in a compacted topic"));
    else if (kind === "JSON") fill(element, jsonTokens(value, this.wanted));
    else if (kind === "Hex") fill(element, hexDump(encoding === "base64" ? unpacked(value) : new TextEncoder().encode(value)));
    else fill(element, marked(value.slice(0, SHOWN), this.wanted), value.length > SHOWN && h("p", { class: "soft" }, `… and ${count(value.length - SHOWN)} more characters: copy the value to see them`));
  }
}

function shown(text, encoding) {
  if (text === null) return h("span", { class: "null" }, "none");
  return encoding === "base64" ? someBytes(text) : someText(text);
}

// A key or header is rarely long; one that is does not push the rest out of sight.
function someText(text) {
  return h("code", {}, text.slice(0, SHOWN_SHORT), text.length > SHOWN_SHORT && h("span", { class: "soft" }, ` … and ${count(text.length - SHOWN_SHORT)} more characters`));
}

function someBytes(base64) {
  const data = unpacked(base64);
  return h("code", {}, hexBytes(data.slice(0, SHOWN_SHORT)), data.length > SHOWN_SHORT && h("span", { class: "soft" }, ` … and ${count(data.length - SHOWN_SHORT)} more bytes`));
}

function sizeOf(message) {
  const size = (text, encoding) => (text === null || text === undefined ? 0 : encoding === "base64" ? unpacked(text).length : new TextEncoder().encode(text).length);
  return size(message.value, message.encoding) + size(message.key, message.key_encoding);
}

function headerTable(headers) {
  const lines = Object.entries(headers).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((each) => [name, each]));
  if (!lines.length) return h("p", { class: "soft" }, "None.");
  return [h("table", {}, h("tbody", {}, lines.slice(0, MOST_HEADERS).map(([name, value]) => h("tr", {},
    h("td", { class: "wrap" }, someText(name)),
    h("td", { class: "wrap" }, value === null ? h("span", { class: "null" }, "none") : typeof value === "object" ? someBytes(value.base64) : someText(value)))))),
  lines.length > MOST_HEADERS && h("p", { class: "soft" }, `… and ${count(lines.length - MOST_HEADERS)} more: copy the message to see them`)];
}

function marked(text, wanted) {
  if (!wanted) return text;
  const found = [];
  const [low, needle] = [lower(text), lower(wanted)];
  let at = 0;
  for (let next = low.indexOf(needle); next >= 0 && found.length < 2000; next = low.indexOf(needle, at)) {
    found.push(text.slice(at, next), h("mark", {}, text.slice(next, next + needle.length)));
    at = next + needle.length;
  }
  return [...found, text.slice(at)];
}

// As the broker does it: other letters may become more than one.
const lower = (text) => text.replace(/[A-Z]+/g, (each) => each.toLowerCase());

// JSON

function isJson(text) {
  if (!/^\s*[[{]/.test(text) || text.length > SHOWN) return false;
  try { JSON.parse(text); return true; } catch { return false; }
}

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;

// Set out in lines by its own tokens, so that numbers stay as they were written. What is nested
// deeply is not set in ever more, and what has a great many tokens is shown to some point.
export function jsonTokens(text, wanted = "") {
  const found = [];
  const all = text.match(TOKEN) ?? [];
  const tokens = all.slice(0, MOST_TOKENS);
  let depth = 0;
  const line = () => found.push(`\n${"  ".repeat(Math.min(depth, DEEPEST))}`);
  tokens.forEach((token, number) => {
    const [before, after] = [tokens[number - 1], tokens[number + 1]];
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") line();
      found.push(token);
    } else if (token === "{" || token === "[") {
      found.push(token);
      depth += 1;
      if (after !== "}" && after !== "]") line();
    } else if (token === ",") {
      found.push(token);
      line();
    } else if (token === ":") {
      found.push(": ");
    } else {
      found.push(h("span", { class: `j-${kindOf(token, after)}` }, marked(token, wanted)));
    }
  });
  if (all.length > MOST_TOKENS) found.push(h("p", { class: "soft" }, "… and more: see it as text, or copy the value"));
  return found;
}

function kindOf(token, after) {
  if (token.startsWith('"')) return after === ":" ? "key" : "text";
  return /^[-\d]/.test(token) ? "number" : "word";
}

// Bytes

function unpacked(base64) {
  const whole = base64.slice(0, base64.length - (base64.length % 4));
  return Uint8Array.from(atob(whole), (each) => each.charCodeAt(0));
}

const hexOf = (each) => each.toString(16).padStart(2, "0");
const hexBytes = (data) => Array.from(data, hexOf).join(" ");

function hexDump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, SHOWN_BYTES); at += 16) {
    const row = data.slice(at, at + 16);
    const text = Array.from(row, (each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hexBytes(row).padEnd(47)}  ${text}`);
  }
  if (data.length > SHOWN_BYTES) lines.push(`… and ${count(data.length - SHOWN_BYTES)} more bytes`);
  return lines.join("\n");
}
