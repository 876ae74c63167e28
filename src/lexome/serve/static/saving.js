// Saving: a file of the format the reader chose, or the mentions on the clipboard.

/** A name for a saved file: the source's own, or the server's word for it, with the ending that the server gives. */
export function fileName(source, format, suggested) {
  const [, word, ending] = /^([\w-]+)\.([\w.]+)$/.exec(suggested ?? "") ?? ["", "annotations", format];
  const stem = source.file ? source.name.replace(/\..*$/s, "").replace(/[^\w-]+/g, "_") : "";
  return `${stem || word}.${ending}`;
}

/** Give the reader a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Put text on the clipboard; false where the browser does not let us. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedTheOldWay(text);
  }
}

/** Pages that are not served from this machine or over HTTPS have no other way. */
function copiedTheOldWay(text) {
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus();
  return done;
}
