// The page: sends text or a file to the server, shows the mentions, filters and exports them.

import * as api from "./api.js";
import { questionForm, resetQuestions } from "./questions.js";
import { offerSearch, searchForm } from "./search.js";
import { useConcepts } from "./concepts.js";
import { drawInTurn, prepareDocument, renderDocument } from "./documents.js";
import { EXAMPLES } from "./examples.js";
import { Filters } from "./filters.js";
import { showElapsed } from "./elapsed.js";
import { Input } from "./input.js";
import { visibleDocument } from "./visible.js";
import { element, putText } from "./marks.js";
import { MentionTable } from "./mentions.js";
import { RelationFilters } from "./relations.js";
import { copyText, fileName, save } from "./download.js";
import { themeButton } from "./themes.js";
import { Tip } from "./tip.js";

const DOCUMENTS_AT_ONCE = 20;
const NAMED_TYPES = 8;
const TABLES = ["csv", "tsv", "xlsx"];

const byId = (id) => document.getElementById(id);
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

const documents = byId("documents");
const shown = { source: null, docs: [], mentions: [], byKey: new Map(), views: [] };
let knownTypes = [];
let answersQuestions = false;
let running = null;
let stopClock = () => {};
let drawing = null;

const filters = new Filters(draw);
const relationFilters = new RelationFilters(draw);
const table = new MentionTable(goTo);
const tip = new Tip(documents, (key) => shown.byKey.get(key));
const input = new Input({ examples: EXAMPLES, annotate, complain });

/** Annotate a source and show the result; a request in progress is canceled. */
async function annotate(source) {
  running?.abort();
  const current = (running = new AbortController());
  setBusy(true);
  try {
    const options = {
      signal: current.signal,
      abbreviations: byId("abbreviations").checked,
      relations: byId("relations").checked,
    };
    const { documents: docs, concepts, notes } = await api.annotate(source, options);
    if (running === current) show(source, docs, concepts, notes);
  } catch (error) {
    if (running === current && error.name !== "AbortError") complain(error);
  } finally {
    if (running === current) setBusy(false);
  }
}

function setBusy(busy) {
  stopClock();
  if (busy) stopClock = showElapsed((seconds) => (byId("annotate").textContent = `Annotating… ${seconds}`.trim()));
  else byId("annotate").textContent = "Annotate";
  byId("annotate").setAttribute("aria-disabled", busy);
  byId("cancel").hidden = !busy;
  byId("results").setAttribute("aria-busy", busy);
  if (busy) {
    byId("error").hidden = true;
    announce("Annotating");
  }
}

function show(source, docs, concepts, notes) {
  useConcepts(concepts);
  byId("notes").replaceChildren(...notes.map((note) => putText(element("li"), note)));
  byId("notes").hidden = !notes.length;
  shown.source = source;
  shown.docs = docs.map(prepareDocument);
  shown.mentions = shown.docs.flatMap((doc) => doc.mentions);
  shown.byKey = new Map(shown.mentions.map((mention) => [mention.key, mention]));
  shown.views = [];
  documents.replaceChildren();
  byId("results").hidden = false;
  if (!byId("format").options.length) loadModelInfo();
  resetQuestions(answersQuestions);
  filters.show(shown.mentions, knownTypes);
  relationFilters.show(shown.docs.flatMap((doc) => doc.source.relations ?? []));
  showDocuments(DOCUMENTS_AT_ONCE);
  draw();
  const below = byId("found").getBoundingClientRect().top > innerHeight * 0.6;
  if (below) byId("results").scrollIntoView({ block: "start" });
}

/** Show this many more documents; a file may have thousands. */
function showDocuments(count) {
  const first = shown.views.length;
  const named = shown.docs.length > 1 || Boolean(shown.source.file);
  for (const doc of shown.docs.slice(first, first + count)) {
    const view = renderDocument(doc, { named });
    shown.views.push(view);
    documents.append(view.article);
  }
  const left = shown.docs.length - shown.views.length;
  byId("more-documents").hidden = left <= 0;
  byId("more-documents").textContent = `Show more documents (${left.toLocaleString("en")} left)`;
  drawText();
}

/** A document as filtered. */
function visible(doc) {
  return visibleDocument(doc, filters.isShown, relationFilters.isShown);
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

/** Update text, table and counts to the filters. */
function draw() {
  tip.hide();
  drawText();
  const mentions = shown.mentions.filter(filters.isShown);
  table.show(mentions);
  showCounts(mentions.length);
}

function showCounts(count) {
  const all = shown.mentions.length;
  const hidden = all - count;
  const where = shown.docs.length === 1 ? "" : ` in ${plural(shown.docs.length, "document")}`;
  byId("found").textContent = all ? plural(count, "mention") + where : `No mentions found${where}`;
  byId("found-more").textContent = hidden ? `${hidden.toLocaleString("en")} hidden by type or score` : "";
  byId("download").disabled = !shown.docs.length;
  byId("copy").disabled = !count;
  announce(`${byId("found").textContent}. ${byId("found-more").textContent}`);
}

/** Announce a status to screen readers. */
function announce(text) {
  byId("status").textContent = text;
}

/** Show an error. The text and the previous result stay, which goes without saying where it is of another form. */
function complain(error) {
  // Some messages of the server include it.
  const included = !error.retryAfter || /retry in/i.test(error.message);
  const wait = included ? "" : ` Retry in ${plural(Number(error.retryAfter), "second")}.`;
  const kept = shown.source ? "Your text is still here; below is the previous result." : "Your text is still here.";
  byId("error").replaceChildren(
    element("strong", "", error.head ?? "Something went wrong on this page."),
    element("p"),
    ...(error.otherForm ? [] : [element("p", "soft small", kept)]),
  );
  putText(byId("error").querySelector("p"), `${error.message}${wait}`);
  byId("error").hidden = false;
  if (error.status === 401) byId("token-row").hidden = false;
  announce("");
  byId("error").scrollIntoView({ block: "nearest" });
}

/** Scroll to a mention in the text, in whichever document it is. */
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
    const { blob, name } = await api.asFile(shown.docs.map(visible), to, byId("table").value);
    save(blob, fileName(source, to, name));
    announce(`Saved as ${to}`);
  } catch (error) {
    complain(error);
  } finally {
    button.disabled = false;
  }
}

/** A table has one row for each mention or for each relation. */
function offerTable() {
  byId("table-row").hidden = !TABLES.includes(byId("format").value);
}

async function copyMentions() {
  const done = await copyText(table.asText());
  const button = byId("copy");
  const words = button.dataset.words ?? (button.dataset.words = button.textContent);
  button.textContent = done ? "Copied" : "Copying is blocked by the browser";
  announce(button.textContent);
  setTimeout(() => (button.textContent = words), 2000);
}

/** Load names and types of the models, and output formats. */
async function loadModelInfo() {
  try {
    const about = await api.model();
    knownTypes = about.types;
    input.maxBytes = about.limits.body_bytes;
    answersQuestions = about.models.some((one) => one.task === "questions");
    byId("relations-key").hidden = !about.relation_types.length;
    offerSearch(about.indexes);
    const names = about.models.map((one) => one.name);
    const finds = knownTypes.slice(0, NAMED_TYPES).join(", ") + (knownTypes.length > NAMED_TYPES ? ", …" : "");
    byId("model").replaceChildren();
    putText(byId("model"), [names.join(" + "), finds].filter(Boolean).join(" · "));
    byId("format").replaceChildren(...about.formats.map((format) => new Option(format)));
    offerTable();
  } catch (error) {
    complain(error);
  }
}

themeButton(byId("theme"));
byId("cancel").addEventListener("click", () => {
  running?.abort();
  running = null;
  setBusy(false);
  announce("Stopped");
  byId("annotate").focus();
});
byId("more-documents").addEventListener("click", () => showDocuments(DOCUMENTS_AT_ONCE));
byId("download").addEventListener("click", download);
byId("copy").addEventListener("click", copyMentions);
byId("format").addEventListener("change", offerTable);
byId("names").addEventListener("change", (event) => documents.classList.toggle("unnamed", !event.target.checked));
byId("token").addEventListener("change", (event) => {
  api.useToken(event.target.value);
  byId("error").hidden = true;
  loadModelInfo();
});
questionForm({ ask: (question) => api.answers(question, shown.docs.map(visible)), complain });
searchForm({ search: api.searchIndex, ask: api.askIndex, complain });
input.start();
loadModelInfo();
