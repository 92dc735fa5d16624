// Requests to the broker. A refusal comes as a problem document, whose words are for people.

export class Problem extends Error {
  constructor(document) {
    super([document.detail, document.hint].filter(Boolean).join("; ") || document.title);
    this.status = document.status;
  }
}

export function at(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

export async function ask(method, path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ status: 0, detail: "The broker does not answer. Is it running?" });
  }
  const told = await answer.json();
  if (!answer.ok) throw new Problem(told);
  return told;
}

export const get = (path, signal) => ask("GET", path, undefined, signal);

export function query(parameters) {
  const known = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return new URLSearchParams(known).toString();
}
