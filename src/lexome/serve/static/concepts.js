// Ids of concepts, with links to the pages of the databases that own them.

import { element, putText } from "./marks.js";

const known = new Map();

/** Names and pages of the concepts that are shown from now on, by id. */
export function useConcepts(concepts) {
  known.clear();
  for (const [id, concept] of Object.entries(concepts ?? {})) known.set(id, concept);
}

/** The preferred name of a concept, or nothing. */
export const nameOf = (id) => known.get(id)?.name ?? "";

/** An id as a link if its database has a page for it, and its preferred name. */
export function conceptElement(id) {
  const { name, url } = known.get(id) ?? {};
  const box = element("span", "concept");
  const label = box.appendChild(element(url?.startsWith("https://") ? "a" : "span", "concept-id"));
  putText(label, id);
  if (label.matches("a")) {
    label.href = url;
    label.target = "_blank";
    label.rel = "noreferrer noopener";
  }
  if (name) {
    box.append(" ");
    putText(box.appendChild(element("span", "soft")), name);
  }
  return box;
}
