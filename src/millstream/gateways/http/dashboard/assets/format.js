// Numbers and times as people read them.

const GROUPED = new Intl.NumberFormat("en-US");
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function count(number) {
  return number === null || number === undefined ? "–" : GROUPED.format(number);
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) < 10_000) return GROUPED.format(Math.round(number));
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size) return `${trimmed(number / size)}${unit}`;
  }
  return String(number);
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < UNITS.length - 1) { number /= 1000; unit += 1; }
  return `${unit === 0 ? Math.round(number) : trimmed(number)} ${UNITS[unit]}`;
}

export function milliseconds(number) {
  if (number === null || number === undefined) return "–";
  if (number >= 1000) return `${trimmed(number / 1000)} s`;
  return `${trimmed(number)} ms`;
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "no time";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return `${ms} ms`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(ms)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(Math.round((now - ms) / 1000), 0);
  if (seconds < 8) return "just now";
  return `${span(seconds)} ago`;
}

export function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// Settings are told as text: those in milliseconds and bytes are hard to read in it.
export function explained(name, value) {
  if (!/^-?\d+$/.test(value)) return "";
  const number = Number(value);
  if (/(\.|^)ms$/.test(name) && number >= 10_000) return number > 1e17 ? "never" : span(Math.round(number / 1000));
  if (/bytes$/.test(name) && number >= 10_000) return number > 1e17 ? "no limit" : bytes(number);
  return "";
}

function trimmed(number) {
  if (number === 0) return "0";
  return number.toFixed(number < 10 ? 2 : number < 100 ? 1 : 0).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

function two(number) {
  return String(number).padStart(2, "0");
}
