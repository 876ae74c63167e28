// Downloads in the chosen format, and mentions to the clipboard.

/** File name of a download: the source's, or the one suggested by the server, with the server's extension. */
export function fileName(source, format, suggested) {
  const [, word, ending] = /^([\w-]+)\.([\w.]+)$/.exec(suggested ?? "") ?? ["", "annotations", format];
  const stem = source.file ? source.name.replace(/\..*$/s, "").replace(/[^\w-]+/g, "_") : "";
  return `${stem || word}.${ending}`;
}

/** Download a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Copy text to the clipboard; false if the browser does not permit it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** For pages without the clipboard API: those not served from localhost or over HTTPS. */
function copyBySelection(text) {
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
