// The page: text or a file to the server, its mentions into view, and what the reader does with them.

import * as api from "./api.js";
import { freshQuestions, questionForm } from "./asking.js";
import { drawInTurn, prepared, shownDocument } from "./documents.js";
import { EXAMPLES } from "./examples.js";
import { Filters } from "./filters.js";
import { Input } from "./input.js";
import { kept } from "./keeping.js";
import { element, putText } from "./marks.js";
import { MentionTable } from "./mentions.js";
import { copied, fileName, save } from "./saving.js";
import { themeButton } from "./themes.js";
import { Tip } from "./tip.js";

const DOCUMENTS_AT_ONCE = 20;
const NAMED_TYPES = 8;

const byId = (id) => document.getElementById(id);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

const documents = byId("documents");
const shown = { source: null, docs: [], mentions: [], byKey: new Map(), views: [] };
let knownTypes = [];
let answersQuestions = false;
let running = null;
let drawing = null;

const filters = new Filters(draw);
const table = new MentionTable(goTo);
const tip = new Tip(documents, (key) => shown.byKey.get(key));
const input = new Input({ examples: EXAMPLES, annotate, complain });

/** Ask for a source to be annotated and show what comes back; a request that still runs is given up. */
async function annotate(source) {
  running?.abort();
  const mine = (running = new AbortController());
  setBusy(true);
  try {
    const docs = await api.annotated(source, { signal: mine.signal });
    if (running === mine) show(source, docs);
  } catch (error) {
    if (running === mine && error.name !== "AbortError") complain(error);
  } finally {
    if (running === mine) setBusy(false);
  }
}

function setBusy(busy) {
  byId("annotate").textContent = busy ? "Annotating…" : "Annotate";
  byId("annotate").setAttribute("aria-disabled", busy);
  byId("cancel").hidden = !busy;
  byId("results").setAttribute("aria-busy", busy);
  if (busy) {
    byId("error").hidden = true;
    say("Annotating");
  }
}

function show(source, docs) {
  shown.source = source;
  shown.docs = docs.map(prepared);
  shown.mentions = shown.docs.flatMap((doc) => doc.mentions);
  shown.byKey = new Map(shown.mentions.map((mention) => [mention.key, mention]));
  shown.views = [];
  documents.replaceChildren();
  byId("results").hidden = false;
  if (!byId("format").options.length) greet();
  freshQuestions(answersQuestions);
  filters.show(shown.mentions, knownTypes);
  showDocuments(DOCUMENTS_AT_ONCE);
  draw();
  const below = byId("found").getBoundingClientRect().top > innerHeight * 0.6;
  if (below) byId("results").scrollIntoView({ block: "start" });
}

/** Show so many documents more; a file may hold thousands. */
function showDocuments(count) {
  const first = shown.views.length;
  const named = shown.docs.length > 1 || Boolean(shown.source.file);
  for (const doc of shown.docs.slice(first, first + count)) {
    const view = shownDocument(doc, { named });
    shown.views.push(view);
    documents.append(view.article);
  }
  const left = shown.docs.length - shown.views.length;
  byId("more-documents").hidden = left <= 0;
  byId("more-documents").textContent = `Show more documents (${left.toLocaleString("en")} left)`;
  drawText();
}

/** A document as the filters leave it. */
function visible(doc) {
  return kept(doc, filters.isShown, filters.lowest);
}

function drawText() {
  drawing?.stop();
  drawing = drawInTurn(
    shown.views.flatMap((view) => view.chunks),
    filters.isShown,
    () => tip.ready(),
  );
  for (const view of shown.views) view.showRelations(visible(view.doc).relations);
  tip.ready();
}

/** Bring text, table and counts to what the filters say. */
function draw() {
  tip.hide();
  drawText();
  const mentions = shown.mentions.filter(filters.isShown);
  table.show(mentions);
  tell(mentions.length);
}

function tell(count) {
  const all = shown.mentions.length;
  const hidden = all - count;
  const where = shown.docs.length === 1 ? "" : ` in ${plural(shown.docs.length, "document")}`;
  byId("found").textContent = all ? plural(count, "mention") + where : `No mentions found${where}`;
  byId("found-more").textContent = hidden ? `${hidden.toLocaleString("en")} hidden by type or score` : "";
  byId("download").disabled = !shown.docs.length;
  byId("copy").disabled = !count;
  say(`${byId("found").textContent}. ${byId("found-more").textContent}`);
}

function say(words) {
  byId("status").textContent = words;
}

/** Show what went wrong. The text stays where it is, and so does what was found before. */
function complain(error) {
  // Some of the server's reasons say it themselves.
  const tells = !error.retryAfter || /try again in/i.test(error.message);
  const wait = tells ? "" : ` Try again in ${plural(Number(error.retryAfter), "second")}.`;
  byId("error").replaceChildren(
    element("strong", "", error.head ?? "Something went wrong on this page."),
    element("p"),
    element("p", "soft small", shown.source ? "Your text is still here; below is what was found before." : "Your text is still here."),
  );
  putText(byId("error").querySelector("p"), `${error.message}${wait}`);
  byId("error").hidden = false;
  if (error.status === 401) byId("token-row").hidden = false;
  say("");
  byId("error").scrollIntoView({ block: "nearest" });
}

/** Lead to a mention in the text, wherever its document is. */
function goTo(mention) {
  if (mention.order >= shown.views.length) showDocuments(mention.order + 1 - shown.views.length);
  drawing.finish();
  const mark = documents.querySelector(`mark[data-m="${mention.key}"][tabindex]`);
  mark?.scrollIntoView({ block: "center" });
  mark?.focus({ preventScroll: true });
}

async function download() {
  const button = byId("download");
  const { source } = shown;
  const to = byId("format").value;
  button.disabled = true;
  byId("error").hidden = true;
  try {
    const { blob, name } = await api.asFile(shown.docs.map(visible), to);
    save(blob, fileName(source, to, name));
    say(`Saved as ${to}`);
  } catch (error) {
    complain(error);
  } finally {
    button.disabled = false;
  }
}

async function copyMentions() {
  const done = await copied(table.asText());
  const button = byId("copy");
  const words = button.dataset.words ?? (button.dataset.words = button.textContent);
  button.textContent = done ? "Copied" : "This browser does not allow copying";
  say(button.textContent);
  setTimeout(() => (button.textContent = words), 2000);
}

/** What the server has: the model's name, its types, the formats it writes. */
async function greet() {
  try {
    const about = await api.model();
    knownTypes = about.types;
    input.largest = about.limits.body_bytes;
    answersQuestions = about.models.some((one) => one.task === "questions");
    const names = about.models.map((one) => one.name);
    const finds = knownTypes.slice(0, NAMED_TYPES).join(", ") + (knownTypes.length > NAMED_TYPES ? ", …" : "");
    byId("model").replaceChildren();
    putText(byId("model"), [names.join(" + "), finds].filter(Boolean).join(" · "));
    byId("format").replaceChildren(...about.formats.map((format) => new Option(format)));
  } catch (error) {
    complain(error);
  }
}

themeButton(byId("theme"));
byId("cancel").addEventListener("click", () => {
  running?.abort();
  running = null;
  setBusy(false);
  say("Stopped");
  byId("annotate").focus();
});
byId("more-documents").addEventListener("click", () => showDocuments(DOCUMENTS_AT_ONCE));
byId("download").addEventListener("click", download);
byId("copy").addEventListener("click", copyMentions);
byId("names").addEventListener("change", (event) => documents.classList.toggle("unnamed", !event.target.checked));
byId("token").addEventListener("change", (event) => {
  api.useToken(event.target.value);
  byId("error").hidden = true;
  greet();
});
questionForm({ ask: (question) => api.answers(question, shown.docs.map(visible)), complain });
input.start();
greet();
