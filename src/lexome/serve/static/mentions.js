// The table of mentions: sortable; clicking a mention scrolls to it in the text.

import { classOf } from "./colors.js";
import { conceptElement } from "./concepts.js";
import { element, putText } from "./marks.js";

const AT_ONCE = 200;

const COLUMNS = [
  { name: "Mention", key: (mention) => mention.text.toLowerCase() },
  { name: "Type", key: (mention) => mention.type },
  { name: "Score", key: (mention) => mention.score ?? 2, number: true },
  { name: "Start", key: (mention) => mention.start, number: true },
  { name: "End", key: (mention) => mention.end, number: true },
  { name: "Concept", key: (mention) => mention.concepts.join(" "), where: (mention) => mention.concepts.length },
  { name: "Document", key: (mention) => mention.order, where: (mention) => mention.order },
];

/** A score as shown everywhere; rounded down, never to a score it does not reach. */
export const scoreText = (score) => (score === null ? "" : (Math.floor(score * 1000) / 1000).toFixed(3));

/** A cell as text; an apostrophe keeps a spreadsheet from running it as a formula. */
const cell = (value) => {
  const text = String(value ?? "").replace(/[\t\r\n]+/g, " ");
  return typeof value === "string" && /^[=+\-@]/.test(text) ? `'${text}` : text;
};

export class MentionTable {
  /** `goTo(mention)` scrolls to a mention in the text. */
  constructor(goTo) {
    this.goTo = goTo;
    this.table = document.getElementById("mentions");
    this.more = document.getElementById("more-mentions");
    this.more.addEventListener("click", () => this.draw(this.limit * 5));
    this.sorted = null;
  }

  show(mentions) {
    this.mentions = mentions;
    this.columns = COLUMNS.filter((column) => !column.where || mentions.some(column.where));
    if (!this.columns.includes(this.sorted?.column)) this.sorted = null;
    this.draw(AT_ONCE);
  }

  draw(limit) {
    this.limit = limit;
    const rows = this.inOrder();
    this.table.tHead.replaceChildren(this.headRow());
    this.table.tBodies[0].replaceChildren(...rows.slice(0, limit).map((mention) => this.row(mention)));
    this.table.hidden = !rows.length;
    document.getElementById("no-mentions").hidden = rows.length > 0;
    const left = rows.length - limit;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${left.toLocaleString("en")} left)`;
  }

  inOrder() {
    if (!this.sorted) return this.mentions;
    const { column, down } = this.sorted;
    const order = (a, b) => (column.key(a) < column.key(b) ? -1 : column.key(a) > column.key(b) ? 1 : 0);
    return [...this.mentions].sort((a, b) => (down ? order(b, a) : order(a, b)));
  }

  headRow() {
    const row = element("tr");
    for (const column of this.columns) {
      const cell = row.appendChild(element("th", column.number ? "n" : ""));
      cell.scope = "col";
      const button = cell.appendChild(element("button", "sort", column.name));
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(column));
      const sorted = this.sorted?.column === column;
      if (sorted) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
    }
    return row;
  }

  /** Up, then down, then as in the text. */
  sortBy(column) {
    const same = this.sorted?.column === column;
    this.sorted = !same ? { column, down: false } : this.sorted.down ? null : { column, down: true };
    this.draw(this.limit);
    this.table.tHead.querySelectorAll("button")[this.columns.indexOf(column)].focus();
  }

  row(mention) {
    const row = element("tr");
    row.dataset.m = mention.key;
    for (const column of this.columns) row.append(this.cell(mention, column));
    return row;
  }

  cell(mention, { name, number }) {
    const cell = element("td", number ? "n" : "");
    if (name === "Mention") {
      const link = cell.appendChild(element("button", "link"));
      link.type = "button";
      putText(link, mention.text);
      link.addEventListener("click", () => this.goTo(mention));
    } else if (name === "Type") {
      putText(cell.appendChild(element("span", `type ${classOf(mention.type)}`)), mention.type);
    } else if (name === "Score") {
      cell.append(scoreText(mention.score));
    } else if (name === "Concept") {
      cell.append(...mention.concepts.map(conceptElement));
    } else if (name === "Document") {
      putText(cell, mention.document);
    } else {
      cell.append(String(name === "Start" ? mention.start : mention.end));
    }
    return cell;
  }

  /** The mentions as tab-separated values, in the order shown, with the columns of `--to tsv`. */
  asText() {
    const head = ["document", "pmid", "passage", "start", "end", "text", "type", "score", "concept", "name"];
    const line = (mention) =>
      [
        mention.document,
        mention.pmid,
        mention.passage,
        mention.start,
        mention.end,
        mention.text,
        mention.type,
        mention.score === null ? "" : Math.round(mention.score * 1e4) / 1e4,
        mention.concepts.join("; "),
        mention.names,
      ].map(cell);
    return [head, ...this.inOrder().map(line)].map((cells) => cells.join("\t")).join("\n") + "\n";
  }
}
