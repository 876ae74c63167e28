// Search over the server's indexes: passages with the words found, and answers to questions with their sentences.

import { element, putText } from "./marks.js";
import { toUnits } from "./offsets.js";

const byId = (id) => document.getElementById(id);

// The latest search: results of an older one arrive too late to be shown.
let latest = null;

/** Set up the form: `search(fields)` and `ask(fields)` return results, `complain(error)` shows an error. */
export function searchForm({ search, ask, complain }) {
  const run = async (send, items) => {
    const text = byId("query").value.trim();
    const concepts = byId("concepts").value.split(/[\s,]+/).filter(Boolean);
    if (!text && !concepts.length) return;
    const current = (latest = {});
    byId("hits").setAttribute("aria-busy", true);
    try {
      const found = await send({ text, concepts, index: byId("index").value });
      if (latest === current) byId("hits").replaceChildren(...items(found));
    } catch (error) {
      if (latest === current) complain(error);
    } finally {
      if (latest === current) byId("hits").setAttribute("aria-busy", false);
    }
  };
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    run(search, hitItems);
  });
  byId("ask-index").addEventListener("click", () => run(ask, answerItems));
}

/** Show the form if the server has indexes. */
export function offerSearch(indexes) {
  byId("search").hidden = !indexes.length;
  byId("index").replaceChildren(...indexes.map((one) => new Option(one.name)));
  byId("index").hidden = indexes.length < 2;
}

function hitItems({ hits, total }) {
  const count = `${total.toLocaleString("en")} passage${total === 1 ? "" : "s"} found`;
  return [element("li", "soft small", count), ...hits.map((hit) => placeItem(hit, hit.title))];
}

function answerItems({ answers, evidence, reader, calibrated }) {
  const raw = calibrated ? "" : ", not calibrated";
  const found = answers.map((answer) => {
    const item = element("li");
    putText(item.appendChild(element("strong")), answer.text);
    putText(item.appendChild(element("span", "soft small")), `probability ${answer.probability.toFixed(2)}${raw}`);
    if (answer.sentence) item.append(...placeItem(answer.sentence, answer.sentence.title).childNodes);
    return item;
  });
  if (found.length && answers[0].sentence) return found;
  const why = reader ? "The reader does not know." : "No model reads this question.";
  const words = found.length ? "Passages that were read say:" : `${why} These sentences are evidence, not an answer:`;
  return [...found, element("li", "soft small", words), ...evidence.map((one) => placeItem(one, one.title))];
}

/** A text with its document and offsets; highlights are offsets in the document. */
function placeItem(place, title) {
  const item = element("li");
  const head = item.appendChild(element("p", "small soft"));
  putText(head, [place.document, title, `${place.start}–${place.end}`].filter(Boolean).join(" · "));
  const text = item.appendChild(element("p"));
  const units = toUnits(place.text);
  let at = 0;
  for (const [start, end] of place.highlights) {
    const [from, to] = [units(start - place.start), units(end - place.start)];
    putText(text.appendChild(element("span", "plain")), place.text.slice(at, from));
    putText(text.appendChild(element("b")), place.text.slice(from, to));
    at = to;
  }
  putText(text.appendChild(element("span", "plain")), place.text.slice(at));
  return item;
}
