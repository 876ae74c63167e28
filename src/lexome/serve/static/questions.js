// Questions to the documents shown, if the server has a question-answering model.

import { element, putText } from "./marks.js";
import { scoreText } from "./mentions.js";
import { showElapsed } from "./elapsed.js";

// As in the terminal.
const LEAST_SHOWN = 0.05;

const byId = (id) => document.getElementById(id);

// The latest question: answers to an older one, or from other documents, arrive too late to be shown.
let latest = null;

/** Set up the form: `ask(question)` returns answers, `complain(error)` shows an error. */
export function questionForm({ ask, complain }) {
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = byId("question").value.trim();
    if (!question) {
      latest = null;
      byId("answers").replaceChildren(element("li", "soft", "Type a question about the text."));
      byId("question").focus();
      return;
    }
    const current = (latest = {});
    byId("error").hidden = true;
    const waiting = element("li", "soft small");
    byId("answers").replaceChildren(waiting);
    const stop = showElapsed((seconds) => (waiting.textContent = `Reading… ${seconds}`));
    try {
      const found = await ask(question);
      if (latest === current) byId("answers").replaceChildren(...answerItems(found));
    } catch (error) {
      if (latest !== current) return;
      byId("answers").replaceChildren();
      const head = error.status === 422 ? "This cannot be answered." : error.head;
      complain(Object.assign(error, { head, otherForm: true }));
    } finally {
      stop();
    }
  });
}

/** Show the form if the server answers questions, and clear answers from other documents. */
export function resetQuestions(answersQuestions) {
  latest = null;
  byId("ask").hidden = !answersQuestions;
  byId("answers").replaceChildren();
}

function answerItems({ answers, note }) {
  const scored = answers.map((answer) => ({ ...answer, probability: answer.score ?? 0 }));
  const ordered = withoutOverlaps(scored.sort((a, b) => b.probability - a.probability));
  const items = withoutNoise(ordered).map((answer) => {
    const item = element("li");
    putText(item, answer.text);
    const place = answer.start === null ? "" : `${answer.start}–${answer.end}`;
    const facts = [answer.document, place, scoreText(answer.score ?? null)].filter(Boolean).join(" · ");
    putText(item.appendChild(element("span", "soft small")), facts);
    return item;
  });
  return [...(note ? [putText(element("li", "soft small"), capitalized(note))] : []), ...items];
}

/** The best answer, and those after it that are not too improbable to be more than noise. */
export function withoutNoise(answers) {
  return answers.filter((answer, place) => place === 0 || answer.probability >= LEAST_SHOWN);
}

/** The text with a capital letter at its start. */
export function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Of answers that overlap, such as BRCA1 and BRCA1 gene, only the first. */
function withoutOverlaps(answers) {
  const kept = [];
  for (const one of answers) {
    const overlaps = (other) => other.document === one.document && other.start < one.end && one.start < other.end;
    if (one.start === null || !kept.some(overlaps)) kept.push(one);
  }
  return kept;
}
