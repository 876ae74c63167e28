// Offsets: the server counts characters (code points), strings here count UTF-16 units.

const BEYOND = /[\ud800-\udbff][\udc00-\udfff]/;

/** A function from code point offsets to UTF-16 offsets of `text`. */
export function toUnits(text) {
  if (!BEYOND.test(text)) return (offset) => offset;
  const places = [];
  let at = 0;
  for (const character of text) {
    places.push(at);
    at += character.length;
  }
  places.push(at);
  return (offset) => places[Math.max(0, Math.min(offset, places.length - 1))];
}

/** Number of code points of `text`. */
export function lengthOf(text) {
  if (!BEYOND.test(text)) return text.length;
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}
