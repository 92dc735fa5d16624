// Elements made by calls. Text only ever becomes a text node, so nothing that a message, a topic or
// a group is called can become markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  return dress(element, properties, children);
}

export function s(tag, properties, ...children) {
  return dress(document.createElementNS(SVG, tag), properties, children);
}

function dress(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function icon(name) {
  return s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));
}

export function button(label, action, { kind = "", icon: picture, title, disabled, square } = {}) {
  const content = picture ? [icon(picture)] : [];
  if (!square) content.push(h("span", {}, label));
  return h("button", {
    type: "button",
    class: [kind, square && "square"].filter(Boolean).join(" ") || undefined,
    title: title ?? (square ? label : undefined),
    "aria-label": square ? label : undefined,
    disabled,
    onclick: (event) => tried(action, event),
  }, content);
}

async function tried(action, event) {
  try {
    await action(event);
  } catch (error) {
    // A refusal is for people; anything else is a defect of ours.
    if (error.status === undefined) throw error;
    const { toast } = await import("./dialog.js");
    toast(error.message, "bad");
  }
}

// Only what changed is written, so that a reader of the screen is not told of the rest.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), more);
}

export function code(text) {
  return h("div", { class: "command" },
    h("pre", { tabindex: "0" }, text),
    button("Copy", () => copy(text), { kind: "ghost", icon: "copy", square: true }));
}

export async function copy(text) {
  const { toast } = await import("./dialog.js");
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser does not let this page copy: select the text instead", "bad");
  }
}
