// Pages of messages, of one partition or of several merged by time, back and forth.

import { get, query } from "./api.js";

// Characters on a page: where messages are large it has fewer of them.
const MOST_CHARACTERS = 8_000_000;

export class Pager {
  // `wanted` is { topic, partitions, partition, order, timestamp, offset, text, key }.
  constructor(wanted) {
    this.wanted = wanted;
    this.isSearch = Boolean(wanted.text || wanted.key);
    this.size = wanted.partitions > 16 && wanted.partition === null ? 20 : 50;
    this.places = [this.begin()];
    this.number = 0;
    // Where each partition ended when it was read.
    this.ends = new Map();
  }

  get hasBefore() { return this.number > 0; }
  get hasAfter() { return this.places.length > this.number + 1; }

  // `told` is called with what was found so far, and how far the scan has come.
  async load(number, told, signal) {
    this.number = number;
    this.places.length = Math.max(this.places.length, number + 1);
    const { messages, place } = this.isSearch
      ? await this.search(this.places[number], told, signal)
      : await this.merge(this.places[number], signal);
    if (place) this.places[number + 1] = place;
    else this.places.length = number + 1;
    return messages;
  }

  begin() {
    const { partition, partitions, offset } = this.wanted;
    if (this.isSearch) return partition === null || offset === null ? {} : { [partition]: offset };
    const numbers = partition === null ? Array.from({ length: partitions }, (_, n) => n) : [partition];
    return new Map(numbers.map((each) => [each, offset]));
  }

  async search(place, told, signal) {
    const messages = [];
    let at = place;
    while (at && messages.length < this.size && sizeOf(messages) < MOST_CHARACTERS) {
      const answer = await this.ask(this.wanted.partition, at, this.size - messages.length, signal);
      messages.push(...answer.messages);
      at = answer.next;
      told(messages, answer.scanned, answer.total);
    }
    return { messages, place: at };
  }

  async merge(place, signal) {
    const parts = await Promise.all([...place].map(async ([partition, offset]) => {
      const found = [];
      let at = offset === null ? {} : { [partition]: offset };
      while (at && found.length < this.size && sizeOf(found) * place.size < MOST_CHARACTERS) {
        const answer = await this.ask(partition, at, this.size - found.length, signal);
        found.push(...answer.messages);
        at = answer.next;
      }
      return { partition, found, rest: at?.[partition] };
    }));
    const sign = this.wanted.order === "newest" ? -1 : 1;
    const messages = parts.flatMap((each) => each.found)
      .sort((a, b) => sign * (a.timestamp - b.timestamp) || a.partition - b.partition || sign * (a.offset - b.offset));
    // Within a partition the order of offsets stands, whatever their times are.
    messages.length = Math.min(messages.length, this.size);
    const taken = inOrder(messages, parts);
    const next = new Map();
    for (const { partition, found, rest } of parts) {
      const used = taken.filter((each) => each.partition === partition).length;
      if (used < found.length) next.set(partition, this.wanted.order === "newest" ? (used ? found[used - 1].offset : found[0].offset + 1) : found[used].offset);
      else if (rest !== undefined) next.set(partition, rest);
    }
    return { messages: taken, place: next.size ? next : null };
  }

  // `at` has offsets by partition; it is empty at the beginning.
  async ask(partition, at, limit, signal) {
    const places = Object.entries(at).map(([number, offset]) => `${number}:${offset}`).join(",");
    const { topic, text, key, timestamp, order } = this.wanted;
    const answer = await get(`api/search?${query({ topic, text, key, partition, timestamp, order, limit, at: places })}`, signal);
    for (const [number, end] of Object.entries(answer.ends)) if (!this.ends.has(Number(number))) this.ends.set(Number(number), end);
    return answer;
  }
}

function sizeOf(messages) {
  return messages.reduce((sum, each) => sum + (each.value?.length ?? 0) + (each.key?.length ?? 0), 0);
}

// As many of each partition as the merge has chosen, the first ones.
function inOrder(messages, parts) {
  const queues = new Map(parts.map(({ partition, found }) => [partition, [...found]]));
  return messages.map((each) => queues.get(each.partition).shift());
}
