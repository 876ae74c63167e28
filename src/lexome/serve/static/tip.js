// Tooltip of a mention under the pointer or focus, and arrow keys to move between mentions.

import { classOf } from "./colors.js";
import { conceptElement } from "./concepts.js";
import { scoreText } from "./mentions.js";
import { element, putText } from "./marks.js";

// Concepts of one mention that are shown; the table has all.
const MAX_CONCEPTS = 5;
const GAP = 8;
const LINGER_MS = 150;

export class Tip {
  /** `find(key)` returns the mention of a mark. */
  constructor(documents, find) {
    this.documents = documents;
    this.find = find;
    this.box = document.getElementById("tip");
    documents.addEventListener("pointerover", (event) => this.over(event));
    // A finger is lifted as soon as it has touched; what it brought up stays until it touches something else.
    documents.addEventListener("pointerout", (event) => event.pointerType === "touch" || this.leave());
    document.addEventListener("pointerdown", (event) => event.target.closest("mark, #tip") || this.hide());
    documents.addEventListener("focusin", (event) => this.focused(event.target));
    documents.addEventListener("focusout", () => this.hide());
    documents.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointerover", () => clearTimeout(this.leaving));
    this.box.addEventListener("pointerout", () => this.leave());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    addEventListener("scroll", () => this.follow(), { passive: true });
  }

  over(event) {
    const mark = event.target.closest("mark");
    if (mark) this.show(mark, event.clientY);
  }

  leave() {
    clearTimeout(this.leaving);
    const focused = document.activeElement;
    this.leaving = setTimeout(() => (focused?.matches?.("mark") ? this.focused(focused) : this.hide()), LINGER_MS);
  }

  focused(mark) {
    if (!mark.matches("mark")) return;
    for (const other of this.documents.querySelectorAll('mark[tabindex="0"]')) other.tabIndex = -1;
    mark.tabIndex = 0;
    mark.setAttribute("aria-describedby", "tip");
    this.show(mark);
  }

  /** Stay with the mark while the page scrolls, until it leaves the screen; of a pointer that leaves it, another event tells. */
  follow() {
    if (this.box.hidden) return;
    const line = this.lineOf(this.mark);
    if (line && line.bottom > 0 && line.top < innerHeight) this.put(line);
    else this.hide();
  }

  /** Show details of a mark's mention, then of those around it. */
  show(mark, y) {
    clearTimeout(this.leaving);
    this.unlight();
    const around = [];
    for (let at = mark; at?.matches("mark"); at = at.parentElement) around.push(this.find(at.dataset.m));
    this.box.replaceChildren(...around.map(details));
    for (const piece of this.documents.querySelectorAll(`mark[data-m="${mark.dataset.m}"]`)) piece.classList.add("on");
    this.box.hidden = false;
    this.mark = mark;
    this.row = [...mark.getClientRects()].findIndex((rect) => y >= rect.top && y <= rect.bottom);
    this.put(this.lineOf(mark));
  }

  /** Where the line of the mark that the pointer is on is now, or its first one; nothing once the mark is gone. */
  lineOf(mark) {
    const lines = mark.getClientRects();
    return lines[this.row] ?? lines[0];
  }

  /** Under the line; above it where there is no room. */
  put(line) {
    const { width, height } = this.box.getBoundingClientRect();
    const left = Math.max(GAP, Math.min(line.left, document.documentElement.clientWidth - width - GAP));
    const below = line.bottom + GAP;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${below + height > innerHeight ? Math.max(GAP, line.top - height - GAP) : below}px`;
  }

  hide() {
    clearTimeout(this.leaving);
    this.unlight();
    this.box.hidden = true;
  }

  unlight() {
    for (const piece of this.documents.querySelectorAll("mark.on")) piece.classList.remove("on");
  }

  /** One mark can be reached with the Tab key, the others from there. */
  ready() {
    if (this.documents.querySelector('mark[tabindex="0"]')) return;
    const first = this.documents.querySelector("mark[tabindex]");
    if (first) first.tabIndex = 0;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !event.target.matches("mark")) return;
    event.preventDefault();
    const marks = [...this.documents.querySelectorAll("mark[tabindex]")];
    const next = Math.max(0, Math.min(marks.indexOf(event.target) + step, marks.length - 1));
    marks[next].focus();
  }
}

function details(mention) {
  const box = element("div", "said");
  const head = box.appendChild(element("p", "said-head"));
  putText(head.appendChild(element("span", `type ${classOf(mention.type)}`)), mention.type);
  if (mention.score !== null) head.append(element("span", "score", scoreText(mention.score)));
  putText(box.appendChild(element("p", "said-text")), mention.text);
  if (mention.longForm) putText(box.appendChild(element("p", "small")), mention.longForm);
  for (const id of mention.concepts.slice(0, MAX_CONCEPTS)) {
    box.appendChild(element("p", "small")).append(conceptElement(id));
  }
  box.append(element("p", "soft small", mention.parts.map(([start, end]) => `${start}–${end}`).join(", ")));
  return box;
}
