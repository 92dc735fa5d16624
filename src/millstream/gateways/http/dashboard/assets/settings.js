// The broker's settings, each with where its value comes from.

import { get } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { explained, plural } from "./format.js";

export function open() {
  let sections = [];
  const search = h("input", { type: "search", class: "grow", placeholder: "Find a setting  ( / )", "aria-label": "Find a setting", oninput: () => draw() });
  const changed = h("input", { type: "checkbox", onchange: () => draw() });
  const number = h("small", { role: "status" });
  const body = h("div", {});

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const fits = (each) => (!changed.checked || each.origin !== "default") && `${each.name} ${each.doc} ${each.value}`.toLowerCase().includes(wanted);
    const shown = sections.map(({ section, settings }) => ({ section, settings: settings.filter(fits) })).filter((each) => each.settings.length);
    number.textContent = plural(shown.reduce((sum, each) => sum + each.settings.length, 0), "setting");
    fill(body, shown.length ? shown.map(card) : empty(
      changed.checked && !wanted ? "Every setting is as it comes" : "No setting is called that",
      "Settings come from a file, from MILLSTREAM_… in the environment, and from flags of millstream serve. millstream config reference lists them all."));
  }

  const load = () => get("api/settings").then((told) => { ({ sections } = told); draw(); }, (error) => fill(body, h("p", { class: "problem" }, error.message)));
  load();

  return {
    title: "Settings",
    view: "overview",
    element: h("div", { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, "Settings")),
      h("div", { class: "toolbar" }, search, h("label", { class: "check" }, changed, "Only those that were set"), number), body),
    // The broker is there again.
    rows() { if (!sections.length) load(); },
  };
}

function card({ section, settings }) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, `[${section}]`)),
    h("div", { class: "table-wrap" }, h("table", { class: "settings" },
      h("thead", {}, h("tr", {}, h("th", {}, "Setting"), h("th", {}, "Value"), h("th", {}, "From"))),
      h("tbody", {}, settings.map((each) => h("tr", {},
        h("td", {}, h("code", {}, each.name), h("br"), h("small", {}, each.doc)),
        h("td", { class: "wrap", title: `Expected: ${each.expected}` }, h("code", {}, each.value || "none"), " ", h("small", {}, explained(each.name, each.value)),
          each.origin !== "default" && each.value !== each.default && h("div", {}, h("small", {}, "default ", h("code", {}, each.default || "none")))),
        h("td", { class: "wrap" }, each.origin === "default" ? h("span", { class: "soft" }, "default") : h("span", { class: "badge good" }, each.origin))))))));
}
