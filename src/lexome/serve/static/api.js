// Requests to the server, and its errors.

const TITLES = {
  400: "The server could not read this.",
  401: "This server requires an access token.",
  403: "The server refuses requests from pages of this origin.",
  404: "The server does not support this request.",
  408: "Sending this took too long.",
  413: "This is too long for the server.",
  415: "The server does not support this file format.",
  422: "The server could not read this.",
  429: "The server is busy.",
  500: "Something went wrong on the server.",
  503: "The server is unavailable.",
  504: "The server took too long.",
};

// What a reader can do, where the server's own words are for those who run it.
const ADVICE = {
  401: "Enter the token that its operator gave you.",
  403: "Open this page at the server's own address, or ask its operator to allow this one.",
  408: "Check your connection and send it again.",
  429: "Others are using it.",
  500: "Your text stays here. Send it again; if that does not help, tell the operator what you sent and when.",
  503: "Your text stays here. Send less at once, or try again later.",
  504: "Your text stays here. Send less at once, or try again later.",
};

// Where the server's own remedy is one of the command line.
const REMEDY = {
  413: "Split it, and send the parts one by one.",
  415: "Save it as plain text, or copy its text into the field.",
  422: "Save it in another format, such as plain text, or copy its text into the field.",
};

/**
 * What a reader of the page has to know of a message: not the options of commands or of Python, and sizes in kB or MB.
 *
 * A remedy that is left out is replaced by another one.
 */
export function forReaders(message, remedy = "") {
  const technical = /(^|[\s(])--[a-z]|`lexome|in Python|with the options |ChemProt|\/openapi\.json|POST \//;
  const sentences = message.split(/(?<=[.!?])\s+(?=[A-Z`"'(])/).map((sentence) =>
    sentence.split("; ").filter((part) => !technical.test(part)).join("; ").replace(/[^.!?]$/, "$&."));
  const kept = sentences.every(Boolean) ? sentences : [...sentences.filter(Boolean), remedy];
  const plain = kept.join(" ").replaceAll(/\bthe body\b/g, "this").replaceAll(/([\d,]+) bytes/g, (_, count) => sizeText(Number(count.replaceAll(",", ""))));
  return plain.trim() || message;
}

/** A number of bytes in kB or MB. */
export function sizeText(bytes) {
  const [size, unit] = bytes < 999_500 ? [bytes / 1000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${size.toLocaleString("en", { maximumSignificantDigits: size < 100 ? 2 : 3 })} ${unit}`;
}

/** An error response: `head` is a short title, `message` has the details, `status` is 0 without a response. */
export class ServerError extends Error {
  constructor(status, message, { retryAfter = null, remedy = REMEDY[status] } = {}) {
    super(ADVICE[status] ?? forReaders(message, remedy));
    this.status = status;
    this.head = TITLES[status] ?? (status ? `The server responded with status ${status}.` : "The server cannot be reached.");
    this.retryAfter = retryAfter;
  }
}

let token = "";

/** Send this access token from now on. */
export function useToken(text) {
  token = text.trim();
}

/** Description of the server's models. */
export async function model() {
  return (await request("model", {})).json();
}

/** The annotated documents of a source, name and page of each concept by its id, and notes on texts that models read badly. */
export async function annotate(source, { signal, abbreviations = false, relations = true } = {}) {
  const query = new URLSearchParams({ ...(abbreviations ? { abbreviations } : {}), ...(relations ? {} : { relations }) });
  if (source.file) query.set("name", source.name);
  const body = source.file ? bytes(source.file) : json({ text: source.text });
  return (await request(`annotate?${query}`, body, signal)).json();
}

/** Documents as a file of another format; without types, the server converts and adds no mentions. */
export async function asFile(documents, to, table = "mentions") {
  const query = new URLSearchParams({ types: "", to, table });
  const response = await request(`annotate?${query}`, json({ documents }));
  const named = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "");
  return { blob: await response.blob(), name: named?.[1] ?? null };
}

/** Answers to a question in documents, and a note on how far they can be relied on. */
export async function answers(question, documents) {
  return (await request("ask", json({ question, documents }))).json();
}

/** Passages of an index. */
export async function searchIndex({ text, concepts, index }) {
  return (await request("search", json({ query: text, concepts, index }))).json();
}

/** Answers to a question from an index, with evidence. */
export async function askIndex({ text, concepts, index }) {
  return (await request("search/ask", json({ question: text, concepts, index }))).json();
}

function json(content) {
  return { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" } };
}

function bytes(file) {
  return { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
}

async function request(path, options, signal) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "No response. Check that the program that serves this page is still running, and that you are online.");
  }
  if (!response.ok) {
    const retryAfter = response.headers.get("Retry-After");
    // What is searched was chosen by those who run the server.
    const remedy = path.startsWith("search") ? "The operator of this server can change that." : REMEDY[response.status];
    throw new ServerError(response.status, await reason(response), { retryAfter, remedy });
  }
  return response;
}

async function reason(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return typeof error === "string" ? error : text;
  } catch {
    return text.slice(0, 300) || response.statusText;
  }
}
