// The server: what the page asks of it, and what went wrong in words.

const HEADS = {
  400: "The server could not read this.",
  401: "This server asks for an access token.",
  403: "The server does not answer pages of this address.",
  404: "The server does not know this request.",
  408: "Sending this took too long.",
  413: "This is too long for the server.",
  415: "The server does not know this kind of file.",
  422: "The server could not read this.",
  429: "The server is busy.",
  500: "Something went wrong on the server.",
  503: "The server cannot answer this now.",
  504: "The server took too long.",
};

/** What went wrong: `head` in a few words, `message` with what to do, `status` 0 where no answer came. */
export class ServerError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.head = HEADS[status] ?? (status ? `The server answered ${status}.` : "The server cannot be reached.");
    this.retryAfter = retryAfter;
  }
}

let token = "";

/** The access token to send from now on. */
export function useToken(given) {
  token = given.trim();
}

/** What the server says of its model. */
export async function model() {
  return (await asked("model", {})).json();
}

/** The documents of a source with what the model says of them. */
export async function annotated(source, { signal } = {}) {
  const answer = await (source.file
    ? asked(`annotate?name=${encodeURIComponent(source.name)}`, bytes(source.file), signal)
    : asked("annotate", json({ text: source.text }), signal));
  return (await answer.json()).documents;
}

/** Documents as they are, as a file of another format; the server is asked for no mentions, so it adds none. */
export async function asFile(documents, to) {
  const answer = await asked(`annotate?types=&to=${encodeURIComponent(to)}`, json({ documents }));
  const named = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") ?? "");
  return { blob: await answer.blob(), name: named?.[1] ?? null };
}

/** Answers to a question in documents. */
export async function answers(question, documents) {
  return (await (await asked("ask", json({ question, documents }))).json()).answers;
}

function json(given) {
  return { method: "POST", body: JSON.stringify(given), headers: { "Content-Type": "application/json" } };
}

function bytes(file) {
  return { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } };
}

async function asked(path, request, signal) {
  const headers = { ...request.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...request, headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "No answer came. Check that `lexome serve` still runs and that you are online.");
  }
  if (!answer.ok) throw new ServerError(answer.status, await reason(answer), answer.headers.get("Retry-After"));
  return answer;
}

async function reason(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return typeof error === "string" ? error : text;
  } catch {
    return text.slice(0, 300) || answer.statusText;
  }
}
