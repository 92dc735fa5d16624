// The page at /docs: every route of /openapi.json, and a way to try it. Nothing comes from elsewhere.

const MOST_SHOWN = 200_000;
const DEEPEST = 5;

const base = new URL(".", location.href).href.replace(/\/$/, "");
const answer = await fetch("openapi.json");
const spec = await answer.json();

/** An element with its properties and what is in it. Text stays text: nothing is read as HTML. */
function make(tag, properties = {}, ...content) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

// Schemas

function resolved(schema) {
  if (!schema?.$ref) return schema ?? {};
  return schema.$ref.split("/").slice(1).reduce((place, step) => place[step], spec);
}

/** A schema as a person would write it down. */
function written(schema, depth = 0) {
  const found = resolved(schema);
  const options = found.anyOf ?? (found.properties ? undefined : found.oneOf);
  if (options) return [...new Set(options.map((each) => written(each, depth)))].join(" | ");
  if ("const" in found) return JSON.stringify(found.const);
  if (found.enum) return found.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (found.type === "array") return `[${written(found.items, depth)}, ...]`;
  if (found.properties) return object(found, depth);
  if (typeof found.additionalProperties === "object") return `{name: ${written(found.additionalProperties, depth)}}`;
  return found.type ?? "anything";
}

function object(schema, depth) {
  if (depth >= DEEPEST) return "{...}";
  const space = "  ".repeat(depth + 1);
  const lines = Object.entries(schema.properties).map(([name, each]) => {
    const mark = schema.required?.includes(name) ? "" : "?";
    const note = each.description ? `   // ${each.description}` : "";
    return `${space}${name}${mark}: ${written(each, depth + 1)}${note}`;
  });
  return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
}

/** What to begin with in the field of a body. */
function exampleOf(content) {
  const schema = resolved(content.schema);
  const first = Object.values(content.examples ?? {})[0]?.value;
  const example = content.example ?? first ?? schema.examples?.[0];
  if (typeof example === "string") return example;
  if (example !== undefined) return JSON.stringify(example, null, 2);
  const names = schema.required ?? [];
  return schema.properties ? JSON.stringify(Object.fromEntries(names.map((name) => [name, ""])), null, 2) : "";
}

// One route

function parameterRow(parameter) {
  const schema = resolved(parameter.schema);
  const words = schema.enum ?? schema.anyOf?.find((each) => each.enum)?.enum;
  const field = words
    ? make("select", {}, ...["", ...words].map((word) => make("option", { value: word }, word)))
    : make("input", { placeholder: schema.default ?? "" });
  field.setAttribute("aria-label", parameter.name);
  const kind = written(schema).replace(" | null", "");
  const told = [kind, parameter.in, parameter.required ? "needed" : ""].filter(Boolean).join(", ");
  const says = make("td", {}, make("div", {}, parameter.description ?? ""), make("div", { className: "faint" }, told));
  const row = make("tr", {}, make("td", {}, make("code", {}, parameter.name)), says, make("td", { className: "field" }, field));
  return { parameter, field, row };
}

function bodyPart(requestBody) {
  if (!requestBody) return null;
  const kinds = Object.keys(requestBody.content);
  const kind = make("select", { ariaLabel: "kind of body" }, ...kinds.map((each) => make("option", {}, each)));
  const text = make("textarea", { spellcheck: false, ariaLabel: "body" });
  const schema = make("pre");
  const choose = () => {
    const content = requestBody.content[kind.value];
    text.value = exampleOf(content);
    schema.textContent = written(content.schema);
  };
  kind.addEventListener("change", choose);
  choose();
  const says = make("p", { className: "faint" }, requestBody.description ?? "");
  return { kind, text, parts: [make("h3", {}, "Body"), says, kind, schema, text] };
}

/** What the fields ask for. */
function requestOf(verb, path, rows, body) {
  const query = new URLSearchParams();
  const headers = {};
  let filled = path;
  for (const { parameter, field } of rows) {
    if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(field.value) || `{${parameter.name}}`);
    else if (field.value && parameter.in === "query") query.append(parameter.name, field.value);
    else if (field.value) headers[parameter.name] = field.value;
  }
  if (body?.text.value) headers["Content-Type"] = body.kind.value;
  const asked = query.size ? `?${query}` : "";
  return { method: verb.toUpperCase(), url: base + filled + asked, headers, body: body?.text.value || undefined };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curlOf({ method, url, headers, body }) {
  const words = ["curl"];
  if (method !== (body ? "POST" : "GET")) words.push("-X", method);
  words.push(quoted(url));
  for (const [name, value] of Object.entries(headers)) words.push("-H", quoted(`${name}: ${value}`));
  if (body) words.push("--data-binary", quoted(body));
  return words.join(" ");
}

/** JSON on several lines; as it came, where that would be wrong: cut off, or with numbers that JavaScript has not. */
function indented(text) {
  if (!text || text.length >= MOST_SHOWN - 100 || /\d{16}/.test(text)) return text;
  return JSON.stringify(JSON.parse(text), null, 2);
}

/** Send a request, and show what comes, also of a stream that does not end. */
async function send(request, output, signal) {
  output.textContent = "waiting...";
  try {
    const { method, url, headers, body } = request;
    const response = await fetch(url, { method, headers, body, signal });
    output.textContent = `${response.status} ${response.statusText}\n\n`;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      output.textContent = (output.textContent + part.value).slice(0, MOST_SHOWN);
    }
    if (response.headers.get("content-type")?.includes("json")) {
      const [status, text] = output.textContent.split("\n\n", 2);
      output.textContent = `${status}\n\n${indented(text)}`;
    }
  } catch (error) {
    output.textContent += signal.aborted ? "\n(stopped)" : `\n${error}`;
  }
}

function tryPart(verb, path, rows, body) {
  const curl = make("pre", { className: "wrap" });
  const output = make("pre", { className: "wrap", hidden: true });
  const button = make("button", { type: "submit" }, "Send");
  const copy = make("button", { type: "button" }, "Copy");
  let running = null;
  const show = () => { curl.textContent = curlOf(requestOf(verb, path, rows, body)); };
  const form = make("form", { oninput: show, onchange: show });
  copy.addEventListener("click", () => navigator.clipboard?.writeText(curl.textContent));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return running.abort();
    running = new AbortController();
    button.textContent = "Stop";
    output.hidden = false;
    await send(requestOf(verb, path, rows, body), output, running.signal);
    running = null;
    button.textContent = "Send";
  });
  show();
  return { form, parts: [make("h3", {}, "Try it"), curl, make("div", { className: "row" }, button, copy), output] };
}

function responseRow([status, told]) {
  const content = Object.entries(told.content ?? {})[0];
  const isPlain = !content || content[0].startsWith("application/problem");
  const says = make("td", {}, told.description);
  if (!isPlain) says.append(make("pre", {}, written(content[1].schema)));
  return make("tr", {}, make("td", {}, make("code", {}, status)), says);
}

function routePart(verb, path, operation) {
  const rows = (operation.parameters ?? []).map(parameterRow);
  const body = bodyPart(operation.requestBody && resolved(operation.requestBody));
  const { form, parts } = tryPart(verb, path, rows, body);
  if (operation.description) form.append(make("p", {}, operation.description));
  if (rows.length) form.append(make("h3", {}, "Parameters"), make("table", {}, ...rows.map((each) => each.row)));
  form.append(...(body?.parts ?? []), ...parts);
  form.append(make("h3", {}, "Answers"), make("table", {}, ...Object.entries(operation.responses).map(responseRow)));
  return make("div", { className: "route" }, form);
}

function routeDetails(verb, path, operation) {
  const summary = make(
    "summary", {},
    make("span", { className: `verb ${verb}` }, verb.toUpperCase()),
    make("code", { className: "path" }, path),
    make("span", { className: "says" }, operation.summary ?? ""),
  );
  const details = make("details", { id: operation.operationId }, summary);
  // Only when somebody looks: there are many.
  details.addEventListener("toggle", () => details.append(routePart(verb, path, operation)), { once: true });
  return details;
}

// The page

const sections = new Map();
for (const [path, verbs] of Object.entries(spec.paths)) {
  for (const [verb, operation] of Object.entries(verbs)) {
    const tag = operation.tags?.[0] ?? "other";
    if (!sections.has(tag)) sections.set(tag, make("section", {}, make("h2", {}, tag)));
    sections.get(tag).append(routeDetails(verb, path, operation));
  }
}
document.querySelector("main").append(...sections.values());
document.querySelector("#about").replaceChildren(
  `${spec.info.version}. ${spec.info.description} `, make("a", { href: "openapi.json" }, "openapi.json"),
);
document.querySelector("#find").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const section of sections.values()) {
    const routes = [...section.querySelectorAll("details")];
    for (const each of routes) {
      const text = each.firstElementChild.textContent.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
    }
    section.hidden = routes.every((each) => each.hidden);
  }
});
if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
