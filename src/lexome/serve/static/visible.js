// A document without its hidden mentions, and without relations and attributes that refer to them.

/** The document with the mentions shown, and the relations shown whose arguments are. */
export function visibleDocument(doc, isShown, isRelationShown) {
  const spans = (doc.source.spans ?? []).filter((_, place) => isShown(doc.mentions[place]));
  const relations = visibleRelations(doc.source, spans, isRelationShown);
  const known = new Set([...spans, ...relations].map((one) => one.id));
  const attributes = (doc.source.attributes ?? []).filter((attribute) => known.has(attribute.target));
  return { ...doc.source, spans, relations, attributes };
}

function visibleRelations(doc, spans, isShown) {
  let relations = (doc.relations ?? []).filter(isShown);
  const concepts = new Set(spans.flatMap((span) => span.concepts ?? []));
  const mentioned = new Set((doc.spans ?? []).flatMap((span) => span.concepts ?? []));
  for (;;) {
    const known = new Set([...spans, ...relations].map((one) => one.id));
    // A concept goes with the last of its mentions; one that the text does not mention stays.
    const left = relations.filter((relation) =>
      relation.arguments.every((side) =>
        side.target == null ? concepts.has(side.concept) || !mentioned.has(side.concept) : known.has(side.target),
      ),
    );
    if (left.length === relations.length) return relations;
    relations = left;
  }
}
