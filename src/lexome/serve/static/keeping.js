// What is kept of a document when some of its mentions are hidden: what leans on a hidden one goes with it.

import { isEnough } from "./filters.js";

/** The document with the mentions that are shown, and with relations of enough score whose sides are all there. */
export function kept(doc, isShown, lowest) {
  const spans = (doc.source.spans ?? []).filter((_, place) => isShown(doc.mentions[place]));
  const relations = keptRelations(doc.source, spans, lowest);
  const known = new Set([...spans, ...relations].map((one) => one.id));
  const attributes = (doc.source.attributes ?? []).filter((attribute) => known.has(attribute.target));
  return { ...doc.source, spans, relations, attributes };
}

function keptRelations(doc, spans, lowest) {
  let relations = (doc.relations ?? []).filter((relation) => isEnough(relation.score ?? null, lowest));
  for (;;) {
    const known = new Set([...spans, ...relations].map((one) => one.id));
    const left = relations.filter((relation) =>
      relation.arguments.every((side) => side.target == null || known.has(side.target)),
    );
    if (left.length === relations.length) return relations;
    relations = left;
  }
}
