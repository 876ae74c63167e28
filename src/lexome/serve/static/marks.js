// Renders text with nested, overlapping and discontinuous mentions.
//
// Each piece of text is inside one element for each mention that covers it. Overlapping mentions are drawn in separate
// lanes under the text, short ones above long ones, so that all are visible. Everything is inserted as text, not HTML.

import { classOf } from "./colors.js";

// Lanes that have a place of their own under the text; deeper ones are drawn in the last.
const LANES = 6;

// Mentions that lie deeper are in the table alone: thousands on the same words would be more than a browser can draw.
const MAX_LANES = 64;

// Characters that would be invisible, or turn the text around them. Joiners are none: emoji and scripts need them.
const STRANGE =
  /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]/;
const ALL_STRANGE = new RegExp(STRANGE, "g");

/** An element with a class and text. */
export function element(tag, classes = "", text = "") {
  const made = document.createElement(tag);
  if (classes) made.className = classes;
  if (text) made.textContent = text;
  return made;
}

/** Put `text` under `parent`, strange characters boxed with their code; the parent. */
export function putText(parent, text) {
  if (!STRANGE.test(text)) {
    parent.append(text);
    return parent;
  }
  let plain = "";
  for (const character of text) {
    if (!STRANGE.test(character)) {
      plain += character;
      continue;
    }
    parent.append(plain);
    plain = "";
    const box = element("span", "ctl", character === "\0" ? "␀" : character);
    box.dataset.c = codeOf(character);
    parent.append(box);
  }
  parent.append(plain);
  return parent;
}

/** Text where no element can stand in it: strange characters are replaced by their codes. */
const coded = (text) => text.replace(ALL_STRANGE, (character) => `‹${codeOf(character)}›`);

const codeOf = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

/** The lane of each mention that has a part here: 0 next to the text, short mentions before long ones. */
export function lanesOf(parts) {
  const own = new Map();
  for (const part of parts) put(own, part.mention, part);
  const size = (mention) => own.get(mention).reduce((sum, part) => sum + part.end - part.start, 0);
  const lanes = [];
  const chosen = new Map();
  for (const mention of [...own.keys()].sort((a, b) => size(a) - size(b))) {
    let lane = lanes.findIndex((taken) => own.get(mention).every((part) => isFree(taken, part)));
    if (lane < 0 && lanes.length === MAX_LANES) continue;
    if (lane < 0) lane = lanes.push([]) - 1;
    for (const part of own.get(mention)) lanes[lane].splice(after(lanes[lane], part.start), 0, part);
    chosen.set(mention, lane);
  }
  return chosen;
}

function isFree(taken, part) {
  const index = after(taken, part.start);
  return !(taken[index]?.start < part.end || taken[index - 1]?.end > part.start);
}

/** The index of the first part in the sorted list that begins at `start` or later. */
function after(taken, start) {
  let low = 0;
  let high = taken.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (taken[middle].start < start) low = middle + 1;
    else high = middle;
  }
  return low;
}

function put(lists, key, one) {
  if (lists.has(key)) lists.get(key).push(one);
  else lists.set(key, [one]);
}

/** Put `text` with its mentions under `parent`; a part is {mention, start, end, first, last}, offsets in UTF-16 units. */
export function putMarked(parent, text, parts) {
  const lanes = lanesOf(parts);
  const deep = Math.min(Math.max(0, ...new Set(lanes.values())), 3);
  parent.className = deep ? `text deep${deep}` : "text";
  const opening = new Map();
  const cuts = new Set([0, text.length]);
  for (const part of parts) {
    if (!lanes.has(part.mention)) continue;
    put(opening, part.start, part);
    cuts.add(part.start).add(part.end);
  }
  const sorted = [...cuts].sort((a, b) => a - b);
  const stack = [];
  sorted.forEach((at, index) => {
    for (const part of reopened(stack, lanes, opening.get(at) ?? [], at)) {
      const mark = marked(part, lanes.get(part.mention), at);
      (stack.at(-1)?.mark ?? parent).append(mark);
      stack.push({ part, mark, lane: lanes.get(part.mention) });
    }
    const next = sorted[index + 1] ?? text.length;
    if (next > at) putText(stack.at(-1)?.mark ?? parent, text.slice(at, next));
  });
}

/** Close what ends here or is crossed here; give what opens, the highest lane first, for it is outermost. */
function reopened(stack, lanes, begun, at) {
  const touched = begun.map((part) => lanes.get(part.mention));
  for (const open of stack) if (open.part.end === at) touched.push(open.lane);
  const highest = touched.length ? Math.max(...touched) : -1;
  const opened = [...begun];
  const named = new Set();
  while (stack.length && stack.at(-1).lane <= highest) {
    const { part, mark } = stack.pop();
    if (part.end > at) opened.push(part);
    else closed(mark, part, named);
  }
  return opened.sort((a, b) => lanes.get(b.mention) - lanes.get(a.mention));
}

function marked({ mention, start, first }, lane, at) {
  const mark = element("mark", `${classOf(mention.type)} l${Math.min(lane, LANES - 1)}`);
  mark.dataset.m = mention.key;
  if (at === start) mark.classList.add("s");
  if (mention.number) mark.classList.add("cut");
  if (at === start && first) mark.tabIndex = -1;
  return mark;
}

/** The end of a part, and of the whole mention: there its type is named, once for all mentions that end together. */
function closed(mark, part, named) {
  mark.classList.add("e");
  if (!part.last || (named.has(part.mention.type) && !part.mention.number)) return;
  named.add(part.mention.type);
  mark.classList.add("z");
  mark.dataset.t = coded(part.mention.type);
  if (part.mention.number) mark.dataset.n = part.mention.number;
}
