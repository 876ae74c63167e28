// Questions to the documents that are shown, where the server has a model that answers some.

import { element, putText } from "./marks.js";
import { scoreText } from "./mentions.js";

const byId = (id) => document.getElementById(id);

// The question whose answers are awaited; those to an older one, or of other documents, come too late to be shown.
let latest = null;

/** Make the question's form work: `ask(question)` gives answers, `complain(error)` says what went wrong. */
export function questionForm({ ask, complain }) {
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = byId("question").value.trim();
    if (!question) return;
    const mine = (latest = {});
    try {
      const answers = await ask(question);
      if (latest === mine) byId("answers").replaceChildren(...shownAnswers(answers));
    } catch (error) {
      if (latest === mine) complain(error);
    }
  });
}

/** Show the form, if the server answers questions; forget the answers to what was asked of other documents. */
export function freshQuestions(answersQuestions) {
  latest = null;
  byId("ask").hidden = !answersQuestions;
  byId("answers").replaceChildren();
}

function shownAnswers(answers) {
  if (!answers.length) return [element("li", "soft", "No answer was found in the text.")];
  return [...answers].sort((a, b) => (b.score ?? 0) - (a.score ?? 0)).map((answer) => {
    const item = element("li");
    putText(item, answer.text);
    const place = answer.start === null ? "" : `${answer.start}–${answer.end}`;
    const facts = [answer.document, place, scoreText(answer.score ?? null)].filter(Boolean).join(" · ");
    putText(item.appendChild(element("span", "soft small")), facts);
    return item;
  });
}
