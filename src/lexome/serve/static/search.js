// Search over the server's indexes: passages with the words found, and answers to questions with their sentences.

import { capitalized, withoutNoise } from "./questions.js";
import { element, putText } from "./marks.js";
import { showElapsed } from "./elapsed.js";
import { toUnits } from "./offsets.js";

const byId = (id) => document.getElementById(id);

// The latest search: results of an older one arrive too late to be shown.
let latest = null;

/** Set up the form: `search(fields)` and `ask(fields)` return results, `complain(error)` shows an error. */
export function searchForm({ search, ask, complain }) {
  const run = async (send, items, missing) => {
    const text = byId("query").value.trim();
    const concepts = conceptsIn(byId("concepts").value);
    if (!text && (send === ask || !concepts.length)) {
      latest = null;
      byId("hits").replaceChildren(element("li", "soft", missing));
      byId("query").focus();
      return;
    }
    const current = (latest = {});
    byId("error").hidden = true;
    byId("hits").setAttribute("aria-busy", true);
    const waiting = element("li", "soft small");
    byId("hits").replaceChildren(waiting);
    const stop = showElapsed((seconds) => (waiting.textContent = `Searching… ${seconds}`));
    try {
      const found = await send({ text, concepts, index: byId("index").value });
      if (latest === current) byId("hits").replaceChildren(...items(found));
    } catch (error) {
      if (latest === current) {
        byId("hits").replaceChildren();
        const head = error.status === 422 ? "This cannot be searched for." : error.head;
        complain(Object.assign(error, { head, otherForm: true }));
      }
    } finally {
      stop();
      if (latest === current) byId("hits").setAttribute("aria-busy", false);
    }
  };
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    run(search, hitItems, "Type words, or the name or id of a concept, to search for.");
  });
  byId("ask-index").addEventListener("click", () => run(ask, answerItems, "Type a question to ask."));
}

/** Names and ids between commas or semicolons; between spaces too, where all are ids. */
function conceptsIn(text) {
  const parts = text.split(/[,;]+/).map((part) => part.trim()).filter(Boolean);
  return parts.flatMap((part) => (part.split(/\s+/).every((word) => /^[\w.-]+:\S+$/.test(word)) ? part.split(/\s+/) : [part]));
}

/** Show the form if the server has indexes. */
export function offerSearch(indexes) {
  byId("search").hidden = !indexes.length;
  byId("index").replaceChildren(...indexes.map((one) => new Option(one.name)));
  byId("index").hidden = indexes.length < 2;
}

function hitItems({ hits, total, concepts, note }) {
  const named = Object.entries(concepts).map(([name, id]) => `${name} is ${id}`);
  const facts = [...named, note, `${total.toLocaleString("en")} passage${total === 1 ? "" : "s"} found`].filter(Boolean);
  const lines = facts.map((fact) => putText(element("li", "soft small"), fact));
  return [...lines, ...hits.map((hit) => placeItem(hit, hit.title))];
}

function answerItems({ answers, evidence, calibrated, note }) {
  const raw = calibrated ? "" : ", not calibrated";
  const found = withoutNoise(answers).map((answer) => {
    const item = element("li");
    putText(item.appendChild(element("strong")), answer.text);
    putText(item.appendChild(element("span", "soft small")), `probability ${answer.probability.toFixed(2)}${raw}`);
    if (answer.sentence) item.append(...placeItem(answer.sentence, answer.sentence.title).childNodes);
    return item;
  });
  const notes = note ? [putText(element("li", "soft small"), capitalized(note))] : [];
  if (found.length && answers[0].sentence) return [...notes, ...found];
  const heading = found.length ? [element("li", "soft small", "Passages that were read say:")] : [];
  return [...notes, ...found, ...heading, ...evidence.map((one) => placeItem(one, one.title))];
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
