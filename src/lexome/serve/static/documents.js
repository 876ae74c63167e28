// Documents of the server as articles: passages with marked mentions, labels and relations.

import { chunksOf } from "./chunks.js";
import { nameOf } from "./concepts.js";
import { element, putMarked, putText } from "./marks.js";
import { lengthOf, toUnits } from "./offsets.js";
import { drawRelations } from "./relations.js";

// How long chunks are drawn before other events are handled.
const TURN_MS = 12;

const MIXED = { title: "h3", heading: "h4" };

/** A document's passages with the parts of mentions in them, and its mentions. */
export function prepareDocument(doc, index) {
  const passages = (doc.passages ?? []).map((passage) => ({
    ...passage,
    kind: passage.kind ?? "paragraph",
    end: passage.offset + lengthOf(passage.text),
    units: toUnits(passage.text),
    parts: [],
  }));
  let cut = 0;
  const mentions = (doc.spans ?? []).map((span, place) => {
    const mention = {
      key: `${index}-${place}`,
      document: doc.id,
      pmid: doc.meta?.pmid ?? "",
      passage: "",
      order: index,
      type: span.type,
      text: span.text,
      score: span.score ?? null,
      start: span.parts[0][0],
      end: span.parts.at(-1)[1],
      parts: span.parts,
      concepts: span.concepts ?? [],
      names: (span.concepts ?? []).map(nameOf).filter(Boolean).join("; "),
      longForm: "",
      number: span.parts.length > 1 ? (cut += 1) : null,
    };
    placeParts(mention, passages);
    return mention;
  });
  addLongForms(doc, mentions);
  return { id: doc.id, labels: doc.labels ?? [], source: doc, passages, mentions };
}

/** Mentions that are short forms get the long form that the document defines. */
function addLongForms(doc, mentions) {
  const texts = new Map((doc.spans ?? []).map((span) => [span.id, span.text]));
  const longForms = new Map();
  for (const relation of doc.relations ?? []) {
    if (relation.type !== "Abbreviation") continue;
    const text = (role) => texts.get(relation.arguments.find((side) => side.role === role)?.target);
    if (!longForms.has(text("ShortForm"))) longForms.set(text("ShortForm"), text("LongForm") ?? "");
  }
  for (const mention of mentions) mention.longForm = longForms.get(mention.text) ?? "";
}

function placeParts(mention, passages) {
  mention.parts.forEach(([start, end], number) => {
    const passage = passageAt(passages, start);
    if (!passage || end > passage.end) return;
    if (number === 0) mention.passage = (passage.section ?? []).join(" > ") || passage.kind;
    passage.parts.push({
      mention,
      start: passage.units(start - passage.offset),
      end: passage.units(end - passage.offset),
      first: number === 0,
      last: number === mention.parts.length - 1,
    });
  });
}

/** The last passage that begins at `offset` or before it. */
function passageAt(passages, offset) {
  let low = 0;
  let high = passages.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (passages[middle].offset <= offset) low = middle + 1;
    else high = middle;
  }
  return passages[low - 1];
}

/** The article of a document, and the chunks of its text, each with `redraw(isShown)` and `holder`. */
export function renderDocument(doc, { named }) {
  const article = element("article", "card doc");
  if (named) article.append(heading(doc));
  if (doc.labels.length) article.append(chips(doc.labels));
  const chunks = [];
  for (const passage of doc.passages) {
    if (doc.passages.length > 1 && !MIXED[passage.kind]) article.append(...above(passage));
    const holder = article.appendChild(element(MIXED[passage.kind] ?? "p", "passage"));
    holder.dir = "auto";
    const own = chunksOf(passage.text, passage.parts).map((chunk) => new Chunk(chunk));
    holder.classList.toggle("long", own.length > 2);
    holder.append(...own.map((chunk) => chunk.holder));
    chunks.push(...own);
  }
  if (!doc.passages.length) article.append(element("p", "soft", "This document has no text."));
  const relations = article.appendChild(element("details", "relations"));
  relations.open = true;
  return { doc, article, chunks, showRelations: (shown) => drawRelations(relations, article, doc, shown) };
}

function heading(doc) {
  const line = element("p", "ids soft small");
  putText(line, doc.id || "(no id)");
  return line;
}

function chips(labels) {
  const list = element("ul", "chips");
  list.setAttribute("aria-label", "Classes");
  for (const label of labels) putText(list.appendChild(element("li")), label);
  return list;
}

function above(passage) {
  const facts = [(passage.section ?? []).at(-1), passage.kind === "paragraph" ? "" : passage.kind].filter(Boolean);
  if (!facts.length) return [];
  const line = element("p", "kind soft");
  putText(line, facts.join(" · "));
  return [line];
}

class Chunk {
  constructor({ text, parts }) {
    this.text = text;
    this.parts = parts;
    this.drawn = "";
    this.holder = element("span", "text");
    putText(this.holder, text);
    this.holder.style.containIntrinsicHeight = `auto ${Math.ceil(text.length / 85) * 34}px`;
  }

  /** Draw the mentions that are shown, if they have changed. */
  redraw(isShown) {
    const parts = this.parts.filter((part) => isShown(part.mention));
    const drawn = parts.map((part) => part.mention.key).join();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.holder.replaceChildren();
    putMarked(this.holder, this.text, parts);
  }

  /** Whether it is on the screen or close to it. */
  get isNear() {
    const { top, bottom } = this.holder.getBoundingClientRect();
    return bottom > -innerHeight && top < 2 * innerHeight;
  }
}

/** Draw chunks, those near the screen first, the others a few at a time; returns functions to finish or stop.
 *
 * `drawn()` is called after each turn.
 */
export function drawInTurn(chunks, isShown, drawn) {
  const near = new Set(chunks.filter((chunk) => chunk.isNear));
  for (const chunk of near) chunk.redraw(isShown);
  const waiting = chunks.filter((chunk) => !near.has(chunk));
  const go = (until) => {
    while (waiting.length && performance.now() < until) waiting.shift().redraw(isShown);
    timer = waiting.length ? setTimeout(() => go(performance.now() + TURN_MS)) : null;
    drawn();
  };
  let timer = waiting.length ? setTimeout(() => go(performance.now() + TURN_MS)) : null;
  return {
    finish: () => (clearTimeout(timer), go(Infinity)),
    stop: () => clearTimeout(timer),
  };
}
