// A document without its hidden mentions, and without relations and attributes that refer to them.

import { isEnough } from "./filters.js";

/** The document with the mentions shown, and relations that reach the minimum score and whose arguments are shown. */
export function visibleDocument(doc, isShown, minimum) {
  const spans = (doc.source.spans ?? []).filter((_, place) => isShown(doc.mentions[place]));
  const relations = visibleRelations(doc.source, spans, minimum);
  const known = new Set([...spans, ...relations].map((one) => one.id));
  const attributes = (doc.source.attributes ?? []).filter((attribute) => known.has(attribute.target));
  return { ...doc.source, spans, relations, attributes };
}

function visibleRelations(doc, spans, minimum) {
  let relations = (doc.relations ?? []).filter((relation) => isEnough(relation.score ?? null, minimum));
  for (;;) {
    const known = new Set([...spans, ...relations].map((one) => one.id));
    const left = relations.filter((relation) =>
      relation.arguments.every((side) => side.target == null || known.has(side.target)),
    );
    if (left.length === relations.length) return relations;
    relations = left;
  }
}
