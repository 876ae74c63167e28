// Questions to the documents shown, if the server has a question-answering model.

import { element, putText } from "./marks.js";
import { scoreText } from "./mentions.js";

const byId = (id) => document.getElementById(id);

// The latest question: answers to an older one, or from other documents, arrive too late to be shown.
let latest = null;

/** Set up the form: `ask(question)` returns answers, `complain(error)` shows an error. */
export function questionForm({ ask, complain }) {
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = byId("question").value.trim();
    if (!question) return;
    const current = (latest = {});
    try {
      const answers = await ask(question);
      if (latest === current) byId("answers").replaceChildren(...answerItems(answers));
    } catch (error) {
      if (latest === current) complain(error);
    }
  });
}

/** Show the form if the server answers questions, and clear answers from other documents. */
export function resetQuestions(answersQuestions) {
  latest = null;
  byId("ask").hidden = !answersQuestions;
  byId("answers").replaceChildren();
}

function answerItems(answers) {
  if (!answers.length) return [element("li", "soft", "The model found no answer in the text.")];
  return withoutOverlaps([...answers].sort((a, b) => (b.score ?? 0) - (a.score ?? 0))).map((answer) => {
    const item = element("li");
    putText(item, answer.text);
    const place = answer.start === null ? "" : `${answer.start}–${answer.end}`;
    const facts = [answer.document, place, scoreText(answer.score ?? null)].filter(Boolean).join(" · ");
    putText(item.appendChild(element("span", "soft small")), facts);
    return item;
  });
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
