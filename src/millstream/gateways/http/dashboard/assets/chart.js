// A line chart over the last minutes, drawn as SVG so that its colours are those of the theme.

import { fill, h, s } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 168;
const ROOM = { left: 52, right: 10, top: 10, bottom: 22 };
const GAP_MS = 6000;
const LEAST_MS = 30_000;

let charts = 0;

export class Chart {
  // `series` are { label, color, value: (point) => number | null }; points have a time `at`.
  constructor({ title, series, format, windowMs = 180_000, least = 1 }) {
    this.series = series;
    this.format = format;
    this.windowMs = windowMs;
    this.least = least;
    this.points = [];
    this.width = 0;
    this.number = charts++;
    this.svg = s("svg", { class: "chart", role: "img", height: HEIGHT, "aria-label": title });
    this.title = title;
    this.legend = h("div", { class: "legend" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.plot = h("div", { class: "plot" }, this.svg, this.tip);
    this.element = h("section", { class: "card chart-card" },
      h("header", {}, h("h2", {}, title), this.legend), this.plot);
    this.values = series.map((each) => {
      const value = h("b", {}, "–");
      this.legend.append(h("span", { class: each.color }, h("i", {}), `${each.label} `, value));
      return value;
    });
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.unpoint());
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
      this.draw();
    }).observe(this.plot);
  }

  show(points) {
    this.points = points;
    const last = points.at(-1);
    this.series.forEach((each, number) => {
      const value = last ? each.value(last) : null;
      const text = value === null || value === undefined ? "–" : this.format(value);
      if (this.values[number].textContent !== text) this.values[number].textContent = text;
    });
    this.draw();
  }

  draw() {
    const { width, points, svg } = this;
    if (width < 80) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const end = points.at(-1)?.at ?? Date.now();
    const first = points.find((each) => each.at >= end - this.windowMs)?.at ?? end;
    const span = Math.min(Math.max(end - first, LEAST_MS), this.windowMs);
    const begin = end - span;
    const seen = points.filter((each) => each.at >= begin - GAP_MS);
    const top = ceiling(Math.max(this.least, ...this.series.flatMap((each) => seen.map((p) => each.value(p) ?? 0))));
    const x = (at) => ROOM.left + ((at - begin) / span) * (width - ROOM.left - ROOM.right);
    const y = (value) => HEIGHT - ROOM.bottom - (value / top) * (HEIGHT - ROOM.top - ROOM.bottom);
    this.scale = { x, y, begin, end, seen };
    const clip = `clip-${this.number}`;
    this.cursor = s("line", { class: "cursor", y1: ROOM.top, y2: HEIGHT - ROOM.bottom, visibility: "hidden" });
    fill(svg,
      s("clipPath", { id: clip }, s("rect", { x: ROOM.left, y: 0, width: width - ROOM.left - ROOM.right, height: HEIGHT })),
      [0, top / 2, top].map((value) => [
        s("line", { class: "grid", x1: ROOM.left, x2: width - ROOM.right, y1: y(value), y2: y(value) }),
        s("text", { x: ROOM.left - 8, y: y(value) + 4, "text-anchor": "end" }, this.format(value)),
      ]),
      this.moments(begin, end).map((at) =>
        s("text", { x: x(at), y: HEIGHT - 5, "text-anchor": "middle" }, span < 150_000 ? clock(at) : clock(at).slice(0, 5))),
      s("g", { "clip-path": `url(#${clip})` }, this.series.map((each, number) => this.line(each, number, x, y, seen))),
      this.cursor);
    svg.setAttribute("aria-label", `${this.title}: ${this.series.map((each, n) => `${each.label} ${this.values[n].textContent}`).join(", ")}`);
  }

  line(each, number, x, y, seen) {
    const runs = [];
    let run = null;
    let before = 0;
    for (const point of seen) {
      const value = each.value(point);
      if (value === null || value === undefined) { run = null; continue; }
      if (!run || point.at - before > GAP_MS) runs.push(run = []);
      run.push([x(point.at), y(value)]);
      before = point.at;
    }
    const path = (run) => `M${run.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}`;
    const floor = y(0).toFixed(1);
    return s("g", { class: each.color },
      number === 0 && runs.filter((r) => r.length > 1).map((r) =>
        s("path", { class: "area", d: `${path(r)}L${r.at(-1)[0].toFixed(1)} ${floor}L${r[0][0].toFixed(1)} ${floor}Z` })),
      runs.map((r) => r.length > 1
        ? s("path", { class: "line", d: path(r) })
        : s("circle", { class: "dot", cx: r[0][0], cy: r[0][1], r: 1.6 })));
  }

  moments(begin, end) {
    const span = end - begin;
    const step = [10_000, 30_000, 60_000, 120_000].find((each) => span / each <= 4) ?? 120_000;
    const found = [];
    for (let at = Math.ceil(begin / step) * step; at <= end; at += step) if (at - begin > span / 12 && end - at > span / 12) found.push(at);
    return found;
  }

  point(event) {
    if (!this.scale?.seen.length) return;
    const { x, seen } = this.scale;
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    let nearest = seen[0];
    for (const each of seen) if (Math.abs(x(each.at) - at) < Math.abs(x(nearest.at) - at)) nearest = each;
    const place = x(nearest.at);
    if (place < ROOM.left) return;
    this.cursor.setAttribute("x1", place);
    this.cursor.setAttribute("x2", place);
    this.cursor.setAttribute("visibility", "visible");
    fill(this.tip, h("time", {}, clock(nearest.at)), this.series.map((each) => {
      const value = each.value(nearest);
      return h("span", { class: each.color }, h("i", {}), `${each.label} `, h("b", {}, value === null || value === undefined ? "–" : this.format(value)));
    }));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(Math.max(place - this.tip.offsetWidth / 2, 0), this.width - this.tip.offsetWidth)}px`;
  }

  unpoint() {
    this.tip.hidden = true;
    this.cursor?.setAttribute("visibility", "hidden");
  }
}

// The next larger of 1, 2, 5, 10, 20 ...
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5, 10]) if (value <= step * power) return step * power;
  return value;
}
