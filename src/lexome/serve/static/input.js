// Input: typed or pasted text, an example, or a file opened or dropped. Typed text is never lost.

import { ServerError, sizeText } from "./api.js";
import { element, putText } from "./marks.js";

const STORAGE_KEY = "lexome-text";

const byId = (id) => document.getElementById(id);

export class Input {
  /** `annotate(source)` is called with {text} or with {file, name}, `complain(error)` with the reason why a file is rejected. */
  constructor({ examples, annotate, complain }) {
    this.annotate = annotate;
    this.complain = complain;
    this.maxBytes = Infinity; // of the server
    this.field = byId("text");
    this.file = null;
    byId("examples").append(...examples.map((example) => this.exampleButton(example)));
  }

  start() {
    this.field.value ||= storedText();
    this.field.addEventListener("input", () => storeText(this.field.value));
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.submit();
    });
    byId("clear").addEventListener("click", () => this.clear());
    byId("open").addEventListener("click", () => byId("picker").click());
    byId("picker").addEventListener("change", (event) => this.take(event.target.files));
    byId("file-remove").addEventListener("click", () => this.showFile(null));
    this.watchDrops();
  }

  submit() {
    if (this.file) this.annotate(this.file);
    else if (this.field.value.trim()) this.annotate({ text: this.field.value });
    else if (document.activeElement !== byId("token")) {
      const how = "Paste text into the field, open a file, or choose one of the examples.";
      this.complain(Object.assign(new Error(how), { head: "There is no text to annotate.", otherForm: true }));
      this.field.focus();
    }
  }

  exampleButton({ name, text }) {
    const button = element("button", "quiet example", name);
    button.type = "button";
    button.addEventListener("click", () => {
      this.showFile(null);
      this.replace(text);
      this.submit();
    });
    return button;
  }

  /** Put text into the field the way typing does, so that the browser's undo brings the old text back. */
  replace(text) {
    const before = document.activeElement;
    this.field.focus({ preventScroll: true });
    this.field.select();
    if (!document.execCommand(text ? "insertText" : "delete", false, text)) this.field.value = text;
    this.field.setSelectionRange(0, 0);
    this.field.scrollTop = 0;
    before?.focus({ preventScroll: true });
    storeText(text);
  }

  clear() {
    this.showFile(null);
    this.replace("");
    this.field.focus();
  }

  /** Take the first of some files and annotate it. */
  async take(files) {
    const [first, ...others] = files;
    if (!first) return;
    const note = others.length ? `one file at a time: ${others.length} more ignored` : "";
    byId("picker").value = "";
    try {
      this.showFile({ file: await this.copyOf(first), name: first.name }, note);
    } catch (error) {
      this.complain(error);
      return;
    }
    this.submit();
  }

  /** A copy, so that the same bytes are sent again even if the file changes. */
  async copyOf(file) {
    if (file.size > this.maxBytes) {
      const sizes = `${sizeText(file.size)}; this server takes up to ${sizeText(this.maxBytes)}`;
      throw new ServerError(413, `The file has ${sizes}. Split it, or copy a part of its text into the field.`);
    }
    try {
      return new Blob([await file.arrayBuffer()]);
    } catch {
      const why = `${file.name} is a folder, or can no longer be read. Open a single file.`;
      throw Object.assign(new Error(why), { head: "The browser cannot read this file." });
    }
  }

  showFile(file, note = "") {
    this.file = file;
    byId("file").hidden = !file;
    this.field.hidden = Boolean(file);
    byId("file-name").replaceChildren();
    if (!file) return;
    putText(byId("file-name"), file.name);
    byId("file-size").textContent = [sizeText(file.file.size), note].filter(Boolean).join(" · ");
  }

  watchDrops() {
    const veil = byId("drop");
    let inside = 0;
    const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", (event) => {
      if (!holdsFiles(event)) return;
      inside += 1;
      veil.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (holdsFiles(event) && (inside -= 1) <= 0) veil.hidden = true;
    });
    addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
    addEventListener("drop", (event) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      inside = 0;
      veil.hidden = true;
      this.take(event.dataTransfer.files);
    });
  }
}

/** Store the text for this tab, so that a reload loses nothing. */
function storeText(text) {
  try {
    sessionStorage.setItem(STORAGE_KEY, text);
  } catch {
    // Storage is full or forbidden; the field itself still has the text.
  }
}

function storedText() {
  try {
    return sessionStorage.getItem(STORAGE_KEY) ?? "";
  } catch {
    return "";
  }
}
