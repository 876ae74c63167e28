// Filters by type and minimum score, applied to mentions that are already loaded.

import { classOf } from "./colors.js";
import { element, putText } from "./marks.js";

const BINS = 50;
const SVG = "http://www.w3.org/2000/svg";

/** Whether a score reaches the minimum. With a minimum of 0 all do: those of a file may be negative. */
export const isEnough = (score, minimum) => score === null || minimum === 0 || score >= minimum;

export class Filters {
  /** `changed()` is called after each change by the user, at most once per frame. */
  constructor(changed) {
    this.off = new Set();
    this.minimum = 0;
    this.mentions = [];
    this.keys = document.getElementById("type-keys");
    this.slider = document.getElementById("score");
    this.shownScore = document.getElementById("score-shown");
    this.histogram = document.getElementById("histogram");
    this.changed = oncePerFrame(changed);
    this.slider.addEventListener("input", () => this.setMinimum(Number(this.slider.value)));
    document.getElementById("all").addEventListener("click", () => this.switchAll(true));
    document.getElementById("none").addEventListener("click", () => this.switchAll(false));
  }

  /** Whether a mention's type is on and its score reaches the minimum; mentions without a score do. */
  isShown = (mention) => !this.off.has(mention.type) && this.isSure(mention);

  isSure = (mention) => isEnough(mention.score, this.minimum);

  /** Types of the mentions, most frequent first, then other types of the model. */
  show(mentions, known) {
    this.mentions = mentions;
    const counts = countOf(mentions);
    const types = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || (a < b ? -1 : 1));
    this.types = [...types, ...known.filter((type) => !counts.has(type))];
    this.keys.replaceChildren(...this.types.map((type) => this.key(type)));
    this.drawHistogram();
    this.count();
  }

  key(type) {
    const label = element("label", `key ${classOf(type)}`);
    const box = label.appendChild(element("input"));
    box.type = "checkbox";
    box.checked = !this.off.has(type);
    box.value = type;
    box.addEventListener("change", () => this.switch(type, box.checked));
    putText(label.appendChild(element("bdi")), type || "(no type)");
    label.append(element("b", "count"));
    return label;
  }

  switch(type, on) {
    if (on) this.off.delete(type);
    else this.off.add(type);
    this.changed();
  }

  switchAll(on) {
    for (const box of this.keys.querySelectorAll("input")) {
      box.checked = on;
      this.switch(box.value, on);
    }
  }

  setMinimum(score) {
    this.minimum = score;
    this.count();
    this.changed();
  }

  /** Counts beside the types: mentions that reach the minimum score, whether or not the type is on. */
  count() {
    const counts = countOf(this.mentions.filter(this.isSure));
    this.keys.querySelectorAll(".key").forEach((label, place) => {
      const count = counts.get(this.types[place]) ?? 0;
      label.lastChild.textContent = count.toLocaleString("en");
      label.classList.toggle("empty", !count);
    });
    this.shownScore.textContent = this.minimum.toFixed(2);
    this.histogram.childNodes.forEach((bar, bin) => bar.classList.toggle("below", (bin + 1) / BINS <= this.minimum));
  }

  /** Histogram of scores; heights are square roots, so that small counts are visible. */
  drawHistogram() {
    const bins = new Array(BINS).fill(0);
    for (const { score } of this.mentions) if (score !== null) bins[Math.min(BINS - 1, Math.floor(score * BINS))] += 1;
    const most = Math.max(...bins);
    this.histogram.toggleAttribute("hidden", !most);
    const bars = bins.map((count, bin) => {
      const height = count ? 2 + 22 * Math.sqrt(count / most) : 0;
      const bar = document.createElementNS(SVG, "rect");
      const place = { x: (bin * 100) / BINS + 0.2, y: 24 - height, width: 100 / BINS - 0.4, height };
      for (const [name, value] of Object.entries(place)) bar.setAttribute(name, value);
      return bar;
    });
    this.histogram.replaceChildren(...bars);
  }
}

function countOf(mentions) {
  const counts = new Map();
  for (const { type } of mentions) counts.set(type, (counts.get(type) ?? 0) + 1);
  return counts;
}

function oncePerFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      act();
    });
  };
}
