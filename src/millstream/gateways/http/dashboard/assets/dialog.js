// Dialogs and short notes. A dialog closes with Esc, and gives the focus back to where it was.

import { button, fill, h } from "./dom.js";

const toasts = document.getElementById("toasts");
const TOAST_MS = 5000;

export function toast(text, kind = "good") {
  const note = h("p", { class: `toast ${kind}` }, text);
  toasts.append(note);
  setTimeout(() => note.remove(), TOAST_MS);
}

// One that stays; returns the way to take it away.
export function notice(text) {
  const note = h("p", { class: "toast bad" }, text);
  toasts.append(note);
  return () => note.remove();
}

// `act` carries out what is asked for; what it throws is shown, and the dialog stays open. `confirm`
// is a text that has to be typed first.
export function dialog({ title, content, action, act, kind = "primary", confirm, wide }) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const cancel = button(act ? "Cancel" : "Close", () => box.close(), { kind: "ghost" });
  const go = act && h("button", { type: "submit", class: kind }, action);
  const typed = confirm !== undefined && h("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": `Type ${confirm} to confirm` });
  if (typed) {
    go.disabled = true;
    typed.addEventListener("input", () => { go.disabled = typed.value !== confirm; });
  }
  const form = h("form", { method: "dialog", novalidate: true },
    h("header", {}, h("h2", {}, title), button("Close", () => box.close(), { kind: "ghost", icon: "close", square: true })),
    h("div", { class: "dialog-body" }, content,
      typed && h("label", { class: "field" }, h("span", {}, "Type ", h("code", {}, confirm), " to confirm"), typed),
      problem),
    h("footer", {}, cancel, go));
  const box = h("dialog", { class: wide && "wide", "aria-label": title }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!act || go.disabled) return;
    go.disabled = true;
    problem.hidden = true;
    try {
      await act();
      box.close();
    } catch (error) {
      problem.hidden = false;
      fill(problem, error.message);
    } finally {
      go.disabled = Boolean(typed) && typed.value !== confirm;
    }
  });
  box.addEventListener("close", () => box.remove());
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
  document.body.append(box);
  box.showModal();
  (form.querySelector(".dialog-body input, .dialog-body textarea, .dialog-body select") ?? go ?? cancel).focus();
  return box;
}

let fields = 0;

// Named by its label alone, and described by its hint.
export function field(label, input, hint) {
  const id = `field-${fields++}`;
  input.setAttribute("aria-labelledby", id);
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("label", { class: "field" }, h("span", { id }, label), input, hint && h("small", { id: `${id}-hint` }, hint));
}

export function choice(options, value) {
  const select = h("select", {}, options.map(([key, label]) => h("option", { value: key }, label)));
  if (value !== undefined) select.value = value;
  return select;
}
