// A long table of which only the rows in sight exist. Arrows move, Enter opens, and a click on a
// column's title sorts by it.

import { fill, h } from "./dom.js";

const ROW_PX = 44;
const SPARE = 6;
const NARROW = matchMedia("(max-width: 720px)");

export class List {
  // `columns` are { title, size, cell: (row) => child, sort: (row) => value, number, wide }; those
  // that are `wide` are left out where there is little room. Rows have a `key`.
  constructor({ label, columns, open, sort = 0, down = false }) {
    this.columns = columns;
    this.open = open;
    this.sortBy = sort;
    this.down = down;
    this.rows = [];
    this.drawn = new Map();
    this.focused = null;
    this.selected = null;
    this.isCompact = false;
    this.head = h("div", { class: "list-head", role: "row" });
    this.body = h("div", { class: "list-body", role: "presentation" });
    this.scroller = h("div", { class: "list-scroll", role: "presentation", tabindex: "-1" }, this.body);
    this.element = h("div", { class: open ? "list openable" : "list", role: "grid", "aria-label": label }, this.head, this.scroller);
    this.scroller.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    NARROW.addEventListener("change", () => this.redraw());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.redraw();
  }

  show(rows) {
    const { sort } = this.columns[this.sortBy];
    const sign = this.down ? -1 : 1;
    const worth = new Map(rows.map((row) => [row, sort?.(row)]));
    this.rows = sort
      ? [...rows].sort((a, b) => sign * compare(worth.get(a), worth.get(b)) || compare(a.key, b.key))
      : rows;
    this.body.style.height = `${this.rows.length * ROW_PX}px`;
    this.element.setAttribute("aria-rowcount", this.rows.length + 1);
    if (!this.rows.some((row) => row.key === this.focused)) this.focused = this.rows[0]?.key ?? null;
    this.draw();
  }

  // With less room than the window has.
  compact(isCompact) {
    if (isCompact === this.isCompact) return;
    this.isCompact = isCompact;
    this.redraw();
  }

  redraw() {
    const isNarrow = NARROW.matches || this.isCompact;
    this.shown = this.columns.filter((each) => !(each.wide && isNarrow));
    const sizes = this.shown.map((each) => (isNarrow && each.narrow) || each.size).join(" ");
    this.element.style.setProperty("--columns", sizes);
    fill(this.head, this.shown.map((each) => {
      const number = this.columns.indexOf(each);
      const isSorted = number === this.sortBy;
      const order = isSorted ? (this.down ? "descending" : "ascending") : "none";
      return h("div", { role: "columnheader", class: each.number && "number", "aria-sort": each.sort ? order : undefined },
        each.sort
          ? h("button", { type: "button", class: "sorter", onclick: () => this.sort(number) }, each.title, isSorted && h("span", { "aria-hidden": "true" }, this.down ? " ↓" : " ↑"))
          : each.title);
    }));
    for (const { element } of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.draw();
  }

  sort(number) {
    if (this.sortBy === number) this.down = !this.down;
    else [this.sortBy, this.down] = [number, Boolean(this.columns[number].number)];
    this.redraw();
    this.show(this.rows);
  }

  draw() {
    const first = Math.max(Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE, 0);
    const last = Math.min(first + Math.ceil(this.scroller.clientHeight / ROW_PX) + 2 * SPARE, this.rows.length);
    const wanted = new Set();
    for (let number = first; number < last; number += 1) {
      const row = this.rows[number];
      wanted.add(row.key);
      this.place(row, number);
    }
    for (const [key, { element }] of this.drawn) {
      if (!wanted.has(key)) { element.remove(); this.drawn.delete(key); }
    }
  }

  place(row, number) {
    let known = this.drawn.get(row.key);
    if (!known) {
      const element = h("div", { class: "list-row", role: "row", tabindex: "-1" });
      element.addEventListener("click", (event) => {
        if (!event.target.closest("button, a, input") && getSelection().isCollapsed) this.choose(row.key);
      });
      element.addEventListener("focus", () => { this.focused = row.key; this.rove(); });
      known = { element, row: null };
      this.drawn.set(row.key, known);
      this.body.append(element);
    }
    const { element } = known;
    if (known.row !== row) {
      known.row = row;
      fill(element, this.shown.map((each) =>
        h("div", { role: "gridcell", class: [each.number && "number", each.mono && "mono"].filter(Boolean).join(" ") || undefined }, each.cell(row))));
    }
    element.style.transform = `translateY(${number * ROW_PX}px)`;
    element.setAttribute("aria-rowindex", number + 2);
    element.tabIndex = row.key === this.focused ? 0 : -1;
    element.classList.toggle("selected", row.key === this.selected);
  }

  // The row that is shown beside the list, also when it was out of sight meanwhile.
  select(key) {
    this.selected = key;
    this.reveal(this.rows.findIndex((row) => row.key === key));
    this.draw();
    this.drawn.get(key)?.element.scrollIntoView({ block: "nearest" });
  }

  reveal(number) {
    if (number < 0) return;
    const top = number * ROW_PX;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW_PX > scrollTop + clientHeight) this.scroller.scrollTop = top + ROW_PX - clientHeight;
  }

  rove() {
    for (const [key, { element }] of this.drawn) element.tabIndex = key === this.focused ? 0 : -1;
  }

  choose(key) {
    const row = this.rows.find((each) => each.key === key);
    if (row) this.open?.(row);
  }

  focus(number) {
    const row = this.rows[Math.min(Math.max(number, 0), this.rows.length - 1)];
    if (!row) return;
    this.focused = row.key;
    this.reveal(this.rows.indexOf(row));
    this.draw();
    this.drawn.get(row.key)?.element.focus();
  }

  key(event) {
    if (event.target.closest("input, select, textarea, .sorter")) return;
    const at = this.rows.findIndex((row) => row.key === this.focused);
    const page = Math.max(Math.floor(this.scroller.clientHeight / ROW_PX) - 1, 1);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: this.rows.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      this.focus(moves[event.key]);
    } else if (event.key === "Enter" && event.target.classList.contains("list-row")) {
      event.preventDefault();
      this.choose(this.focused);
    }
  }
}

function compare(a, b) {
  if (a === b) return 0;
  if (typeof a === "string" && typeof b === "string") return a.localeCompare(b, "en", { numeric: true });
  return a < b ? -1 : 1;
}
