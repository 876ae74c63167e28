"""`lexome serve`: models over HTTP, with a web page to try them."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.options import Link, ModelOptions, Quiet, TermOptions, Threads, app, grouped
from lexome.errors import UsageError, needs
from lexome.serve.limits import Limits

if TYPE_CHECKING:
    from lexome.search.engine import Index

TOKEN = "LEXOME_TOKEN"
BOUNDS = Limits()
MB = 1_000_000


Documents = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File or folder with the documents that /pubmed and /publications serve."),
]
Indexes = Annotated[
    list[str] | None,
    typer.Option("--index", metavar="[NAME=]FOLDER", help="Index for /search, written by `lexome index`; repeatable."),
]
BatchTokens = Annotated[
    int, typer.Option(metavar="N", min=0, help="Maximum tokens per batch; 0 runs windows one by one, fastest on a CPU.")
]
AccessLog = Annotated[
    bool,
    typer.Option("--access-log/--no-access-log", help="Log each request to standard error, without its text."),
]


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Where the service listens, and who may use it."""

    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 for all interfaces.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 for any free one.")] = (
        8000
    )
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File with the bearer token that requests must send. Default: {TOKEN}."),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on other addresses than localhost without a token.")
    ] = False
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Allowed CORS origin; repeatable.")
    ] = None

    def token(self, *, local: bool) -> str | None:
        """The token in a file or the environment; as an option every user of the machine could read it.

        UsageError if there is none, and the address is not local.
        """
        file, host = self.token_file, self.host
        token = file.read_text(encoding="utf-8").strip() if file is not None else os.environ.get(TOKEN, "").strip()
        if file is not None and not token:
            raise UsageError(f"{file}: is empty; expected a token.", code="empty-file", value=file)
        if not (token or local or self.insecure):
            message = f"{host}: anyone who can reach this address could use the service. Set a token with {TOKEN} or"
            raise UsageError(f"{message} --token-file, or accept that with --insecure.", code="open-host", value=host)
        return token or None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits of the service."""

    max_megabytes: Annotated[
        float, typer.Option(metavar="MB", min=0.001, help="Maximum size of a request body, in MB.")
    ] = BOUNDS.body_bytes / MB
    max_documents: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum documents per request.")] = (
        BOUNDS.documents
    )
    max_characters: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum characters per document.")] = (
        BOUNDS.characters
    )
    max_waiting: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum documents in the queue, of all clients.")
    ] = BOUNDS.queue
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds until a request times out.")] = (
        BOUNDS.answer_s
    )
    read_timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds to receive a request.")] = (
        BOUNDS.read_s
    )
    stop_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Seconds to finish open requests on shutdown.")
    ] = BOUNDS.stop_s

    def parse(self) -> Limits:
        """The limits; those without an option have their defaults."""
        return Limits(
            body_bytes=int(self.max_megabytes * MB),
            documents=self.max_documents,
            characters=self.max_characters,
            queue=self.max_waiting,
            answer_s=self.timeout,
            read_s=self.read_timeout,
            stop_s=self.stop_timeout,
        )


@app.command()
@grouped
def serve(
    *,
    models: ModelOptions,
    documents: Documents = None,
    index: Indexes = None,
    link: Link = True,
    dictionaries: TermOptions,
    access: AccessOptions,
    threads: Threads = None,
    batch_tokens: BatchTokens = 0,
    limits: LimitOptions,
    access_log: AccessLog = True,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, with a web page to try them.

    Endpoints are /annotate, /classify, /ask and /search, and those of BERN2 and PubTator; /docs describes them,
    /metrics is for Prometheus. By default it listens on localhost only; on other addresses it requires a token. Ctrl-C
    finishes open requests, then stops; SIGHUP reloads the models.
    """
    with needs("serve", purpose="serving"):
        from lexome.serve.middleware import local_names
        from lexome.serve.server import listening, make_app
        from lexome.serve.server import serve as run
    from lexome.formats import Tally
    from lexome.infer.annotator import Annotator, load
    from lexome.serve.service import Library

    host, names = access.host, local_names(access.host)
    token = access.token(local=names is not None)
    if access_log and not quiet:
        _log_access()
    concepts = dictionaries.concepts(link=link)
    bounds = limits.parse()

    def open_models() -> Annotator:
        return load(*models.folders(), threads=1, concepts=concepts)

    annotator = open_models()
    if not quiet and annotator.concepts is not None:
        for note, times in (annotator.concepts.dropped + annotator.concepts.unused(annotator.types)).most_common():
            print(f"noted    {times:,} {note}", file=sys.stderr)
    tally = Tally()
    library = Library.open(documents, tally) if documents is not None else Library()
    service = make_app(
        annotator,
        library=library,
        limits=bounds,
        token=token,
        origins=access.allow_origin or (),
        hosts=names if token is None else None,
        threads=threads,
        batch_tokens=batch_tokens,
        open_models=open_models,
        indexes=_open_indexes(index or ()),
    )
    with listening(host, access.port) as socket:
        if not quiet:
            stored = library.documents if documents is not None else None
            _announce([model.name for model in annotator.models], stored, host, socket.getsockname()[1])
        if names is None:
            _warn(host, has_token=token is not None)
        run(service, socket, limits=bounds)


def _open_indexes(options: Sequence[str]) -> "dict[str, Index]":
    """The indexes by their names: those given, or those of their folders."""
    from lexome.search.engine import Index

    opened: dict[str, Index] = {}
    for one in options:
        name, equals, folder = one.partition("=") if not Path(one).exists() else ("", "", one)
        path = Path(folder if equals or not name else name)
        name = name if equals else path.resolve().name
        if name in opened:
            message = f"two indexes are called {name!r}. Name them: --index NAME=FOLDER."
            raise UsageError(message, code="duplicate-index", value=name)
        opened[name] = Index.open(path)
    return opened


def _warn(host: str, *, has_token: bool) -> None:
    """Even with --quiet: whoever reads the log of a service has to find it there."""
    risk = "HTTP is not encrypted: put a proxy with TLS in front" if has_token else "it has no token: ANYONE can use it"
    print(f"WARNING  {host} is not local and {risk}", file=sys.stderr, flush=True)


def _log_access() -> None:
    log = logging.getLogger("lexome.access")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _announce(models: Sequence[str], documents: int | None, host: str, port: int) -> None:
    stored = "" if documents is None else f", {documents:,} documents"
    address = f"[{host}]" if ":" in host else host
    print(f"serving  {', '.join(models)}{stored}", file=sys.stderr)
    print(f"at       http://{address}:{port}/", file=sys.stderr, flush=True)
