// Data pipelines, as they told of themselves last.

import { code, empty, fill, h } from "./dom.js";
import { ago, count, plural, short } from "./format.js";

const NO_RATE = new Set(["stopped", "finished", "failed"]);
const KINDS = { running: "good", starting: "warn", stopping: "warn", failed: "bad" };
const MOST_CHARACTERS = 4000;
const MOST_QUERIES = 200;

export function open() {
  const body = h("div", {});
  let rows = [];

  function draw() {
    const opened = new Set([...body.querySelectorAll("details[open]")].map((each) => each.dataset.pipeline));
    fill(body, rows.length ? rows.map((each) => card(each, opened.has(each.pipeline))) : empty("No pipelines yet",
      "A pipeline reads topics with Spark, cleans and joins what it finds, and writes tables. It tells here how far it has come, from wherever it runs:",
      code("millstream pipeline run pipeline.yaml")));
  }

  return {
    title: "Pipelines",
    view: "pipelines",
    element: h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, "Pipelines")), body),
    rows(table) {
      rows = [...table.values()].sort((a, b) => a.pipeline.localeCompare(b.pipeline));
      draw();
    },
  };
}

// Anybody can write to the topic that pipelines tell of themselves in, and anything.
function read(told) {
  const words = (each) => (typeof each === "string" ? each.slice(0, MOST_CHARACTERS) : "");
  const number = (each) => (Number.isFinite(each) ? Math.min(Math.max(each, 0), Number.MAX_SAFE_INTEGER) : 0);
  const queries = (Array.isArray(told.queries) ? told.queries : []).filter((each) => each !== null && typeof each === "object").slice(0, MOST_QUERIES);
  return {
    ...told, state: words(told.state), host: words(told.host), error: words(told.error), at: number(told.at),
    rows_in: number(told.rows_in), rows_out: number(told.rows_out), rows_in_per_s: number(told.rows_in_per_s), rows_out_per_s: number(told.rows_out_per_s),
    lag: number(told.lag), bad_rows: number(told.bad_rows),
    queries: queries.map((each) => ({
      sink: words(each.sink) || "–", batch: Number.isFinite(each.batch) ? number(each.batch) : null,
      batch_ms: number(each.batch_ms), rows_in: number(each.rows_in), rows_out: number(each.rows_out), state_rows: number(each.state_rows),
    })),
  };
}

function card(told, isOpen) {
  const each = read(told);
  const state = each.is_stale ? "gone" : each.state;
  // Of one that is gone it is not known what it does now.
  const rate = (number) => (each.is_stale || NO_RATE.has(state) ? "–" : `${short(number ?? 0)}/s`);
  const kind = each.is_stale ? "bad" : Object.hasOwn(KINDS, state) ? KINDS[state] : "";
  return h("section", { class: "card" },
    h("header", {},
      h("h2", { class: "wrap" }, each.pipeline, " ", h("span", { class: `badge ${kind}` }, state || "unknown")),
      h("small", {}, [each.host && `on ${each.host}`, each.at && `heard from ${ago(each.at)}`].filter(Boolean).join(", "))),
    each.is_stale && h("p", { class: "notice" }, "It said that it runs and has been silent since: its process is gone."),
    each.error && h("p", { class: "problem" }, each.error),
    h("div", { class: "tiles" }, [
      ["Rows in", rate(each.rows_in_per_s), `${count(each.rows_in)} in all`, ""],
      ["Rows out", rate(each.rows_out_per_s), `${count(each.rows_out)} in all`, ""],
      ["Lag", short(each.lag ?? 0), "messages not read yet", ""],
      ["Bad rows", count(each.bad_rows ?? 0), each.bad_rows ? "put aside" : "none", each.bad_rows ? "warn" : ""],
    ].map(([label, value, note, warn]) => h("div", { class: `tile ${warn}` }, h("span", {}, label), h("b", {}, value), h("small", {}, note)))),
    each.queries?.length > 0 && h("details", { class: "more", open: isOpen, "data-pipeline": each.pipeline }, h("summary", {}, plural(each.queries.length, "query", "queries")),
      h("div", { class: "table-wrap" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "Writes to"), h("th", { class: "number" }, "Batch"), h("th", { class: "number" }, "Took"), h("th", { class: "number" }, "Rows in"), h("th", { class: "number" }, "Rows out"), h("th", { class: "number" }, "State rows"))),
        h("tbody", {}, each.queries.map((query) => h("tr", {},
          h("td", { class: "wrap" }, query.sink),
          h("td", { class: "number" }, query.batch === null ? "–" : count(query.batch)),
          h("td", { class: "number" }, `${count(query.batch_ms)} ms`),
          h("td", { class: "number" }, count(query.rows_in)),
          h("td", { class: "number" }, count(query.rows_out)),
          h("td", { class: "number" }, count(query.state_rows)))))))));
}
