// Splits a long text into chunks, so that only the visible part is laid out and drawn at once.

const SMALL = 1500;
const LARGE = 6000;

/** Split `text` and its parts into {text, parts}: at line ends, in very long lines after a sentence, never in a part. */
export function chunksOf(text, parts) {
  const chunks = [];
  const isInside = coverOf(parts);
  let start = 0;
  while (text.length - start > 2 * SMALL) {
    const cut = nextCut(text, start, isInside);
    if (cut >= text.length) break;
    chunks.push({ text: text.slice(start, cut), start });
    start = cut;
  }
  chunks.push({ text: text.slice(start), start });
  const sorted = [...parts].sort((a, b) => a.start - b.start);
  let next = 0;
  for (const chunk of chunks) {
    const end = chunk.start + chunk.text.length;
    chunk.parts = [];
    for (; next < sorted.length && sorted[next].start < end; next++) {
      const part = sorted[next];
      chunk.parts.push({ ...part, start: part.start - chunk.start, end: part.end - chunk.start });
    }
  }
  return chunks;
}

function nextCut(text, start, isInside) {
  const end = /\n+|\. /g;
  end.lastIndex = start + SMALL;
  for (let found = end.exec(text); found; found = end.exec(text)) {
    const isLine = found[0] !== ". ";
    if ((isLine || end.lastIndex > start + LARGE) && !isInside(end.lastIndex)) return end.lastIndex;
  }
  return text.length;
}

/** A function that tells whether an offset is inside a part; it must be called in ascending order. */
function coverOf(parts) {
  const sorted = [...parts].sort((a, b) => a.start - b.start);
  let next = 0;
  let reach = 0;
  return (offset) => {
    for (; next < sorted.length && sorted[next].start < offset; next++) reach = Math.max(reach, sorted[next].end);
    return reach > offset;
  };
}
