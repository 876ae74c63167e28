// Relations: a table below each document, and filters by relation type and minimum score.

import { classOf } from "./colors.js";
import { conceptElement } from "./concepts.js";
import { isEnough } from "./filters.js";
import { element, putText } from "./marks.js";
import { scoreText } from "./mentions.js";

const byId = (id) => document.getElementById(id);

// Rows of one document; a text of thousands of relations would take seconds to draw.
const MAX_ROWS = 500;
const mentionsOf = new WeakMap();

/** Filters of relations; `changed()` is called after each change by the user. */
export class RelationFilters {
  constructor(changed) {
    this.off = new Set();
    this.minimum = 0;
    this.changed = changed;
    byId("relation-score").addEventListener("input", (event) => {
      this.minimum = Number(event.target.value);
      byId("relation-score-shown").textContent = this.minimum.toFixed(2);
      changed();
    });
  }

  /** Whether a relation's type is on and its score reaches the minimum. */
  isShown = (relation) => !this.off.has(relation.type) && isEnough(relation.score ?? null, this.minimum);

  /** The types of relations, most frequent first. */
  show(relations) {
    const counts = new Map();
    for (const { type } of relations) counts.set(type, (counts.get(type) ?? 0) + 1);
    const types = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || (a < b ? -1 : 1));
    byId("relation-types").hidden = !types.length;
    byId("relation-keys").replaceChildren(...types.map((type) => this.key(type, counts.get(type))));
  }

  key(type, count) {
    const label = element("label", "key");
    const box = label.appendChild(element("input"));
    box.type = "checkbox";
    box.checked = !this.off.has(type);
    box.addEventListener("change", () => {
      if (box.checked) this.off.delete(type);
      else this.off.add(type);
      this.changed();
    });
    putText(label.appendChild(element("bdi")), type || "(no type)");
    label.append(element("b", "count", count.toLocaleString("en")));
    return label;
  }
}

/** The relations as a table; a row under the pointer or with focus lights the mentions of its two sides, a click shows
 * the first of them. */
export function drawRelations(box, article, doc, relations) {
  box.hidden = !relations.length;
  const sides = sidesOf(doc);
  const table = element("table", "who");
  const head = table.appendChild(element("thead")).appendChild(element("tr"));
  const novel = relations.some((relation) => relation.novel !== null && relation.novel !== undefined);
  for (const name of ["Entity 1", "Relation", "Entity 2", "Score", ...(novel ? ["Novel"] : [])]) {
    head.appendChild(element("th", name === "Score" ? "n" : "", name)).scope = "col";
  }
  const body = table.appendChild(element("tbody"));
  for (const relation of relations.slice(0, MAX_ROWS)) body.append(rowOf(relation, sides, article, novel));
  const left = relations.length - MAX_ROWS;
  const more = left > 0 ? [element("p", "soft small", `${left.toLocaleString("en")} more are in the export.`)] : [];
  const wide = element("div", "wide");
  wide.append(table);
  box.replaceChildren(element("summary", "", `Relations (${relations.length})`), wide, ...more);
}

/** By id of a span or a concept, the mentions that it is; a concept is all of its mentions. */
function sidesOf(doc) {
  const sides = new Map();
  doc.mentions.forEach((mention, place) => {
    sides.set(doc.source.spans[place].id, [mention]);
    for (const concept of mention.concepts) {
      if (!sides.has(concept)) sides.set(concept, []);
      if (!sides.get(concept).includes(mention)) sides.get(concept).push(mention);
    }
  });
  return sides;
}

function rowOf(relation, sides, article, novel) {
  const row = element("tr");
  const [first, ...others] = relation.arguments ?? [];
  const who = row.appendChild(element("td"));
  if (first) who.append(sideElement(first, sides));
  putText(row.appendChild(element("td", "relation")), relation.type);
  row.appendChild(element("td")).append(...others.map((side) => sideElement(side, sides)));
  row.append(element("td", "n", scoreText(relation.score ?? null)));
  if (novel) row.append(element("td", "", relation.novel ? "yes" : relation.novel === false ? "no" : ""));
  mentionsOf.set(row, (relation.arguments ?? []).flatMap((side) => sides.get(side.target ?? side.concept) ?? []));
  for (const event of ["pointerenter", "focusin"]) row.addEventListener(event, () => light(article, row));
  row.addEventListener("pointerleave", () => light(article, document.activeElement.closest("table.who tbody tr")));
  row.addEventListener("focusout", () => light(article, null));
  // In a long text the mentions are above the screen.
  row.addEventListener("click", (event) => {
    if (!event.target.closest("a")) article.querySelector("mark.related")?.scrollIntoView({ block: "center" });
  });
  row.tabIndex = 0;
  return row;
}

/** Light the mentions of a row, or none, and no others. */
function light(article, row) {
  for (const mark of article.querySelectorAll("mark.related")) mark.classList.remove("related");
  for (const { key } of mentionsOf.get(row) ?? []) {
    for (const mark of article.querySelectorAll(`mark[data-m="${key}"]`)) mark.classList.add("related");
  }
}

/** A side: its mention, or the first mention of its concept, with the concept; else its name. */
function sideElement(side, sides) {
  const box = element("span", "side");
  const mention = sides.get(side.target ?? side.concept)?.[0];
  const name = box.appendChild(element("span", mention ? `type ${classOf(mention.type)}` : ""));
  putText(name, mention?.text ?? side.target ?? side.concept ?? "");
  if (mention && ![mention.type, "Arg1", "Arg2"].includes(side.role)) {
    box.append(" ");
    putText(box.appendChild(element("span", "soft small")), side.role);
  }
  const concepts = side.concept ? [side.concept] : (mention?.concepts ?? []).slice(0, 1);
  if (mention) for (const concept of concepts) box.appendChild(element("span", "small")).append(conceptElement(concept));
  return box;
}
