"""`lexome serve`: models as a service, with a page to try them on."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lexome.cli.app import Quiet, app, needs
from lexome.errors import UsageError
from lexome.serve.limits import Limits

TOKEN = "LEXOME_TOKEN"
BOUNDS = Limits()
MB = 1_000_000


Models = Annotated[
    list[Path] | None,
    typer.Option("--model", metavar="FOLDER", help="An exported model; again for more. Default: Lexome's own."),
]
Documents = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Documents to answer /pubmed and /publications from: folder or file."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Holds the token that requests must have. Default: that in {TOKEN}."),
]
Origins = Annotated[
    list[str] | None, typer.Option(metavar="ORIGIN", help="A web page elsewhere that may ask; again for more.")
]
BatchTokens = Annotated[
    int, typer.Option(min=0, help="Run windows together up to so many tokens. On a CPU, 0 is fastest.")
]
StopTimeout = Annotated[float, typer.Option(min=1, help="Seconds to finish what is under way at the end.")]


@app.command()
def serve(
    models: Models = None,
    documents: Documents = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for everyone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    token_file: TokenFile = None,
    allow_origin: Origins = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: the usable cores.")] = None,
    batch_tokens: BatchTokens = 0,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Of one request.")] = BOUNDS.body_bytes / MB,
    max_documents: Annotated[int, typer.Option(min=1, help="In one request.")] = BOUNDS.documents,
    max_characters: Annotated[int, typer.Option(min=1, help="Of one document.")] = BOUNDS.characters,
    max_waiting: Annotated[int, typer.Option(min=1, help="Documents of all clients that wait.")] = BOUNDS.queue,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds from a request to its answer.")] = BOUNDS.answer_s,
    read_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a request to arrive.")] = BOUNDS.read_s,
    stop_timeout: StopTimeout = BOUNDS.stop_s,
    quiet: Quiet = False,
) -> None:
    """Serve models over HTTP, with a page to try them on.

    Addresses are /annotate, /classify, /ask, BERN2's and PubTator's. It listens to this machine alone unless --host
    says otherwise. /openapi.json describes every address, /metrics is for Prometheus. Ctrl-C stops it, once what is
    under way is answered.
    """
    with needs("serve", purpose="serving"):
        from lexome.serve.app import make_app
        from lexome.serve.middleware import local_names
        from lexome.serve.server import listening
        from lexome.serve.server import serve as run
    from lexome.formats import Tally
    from lexome.infer.annotator import load
    from lexome.serve.service import Library

    limits = Limits(
        body_bytes=int(max_megabytes * MB),
        documents=max_documents,
        characters=max_characters,
        queue=max_waiting,
        answer_s=timeout,
        read_s=read_timeout,
        stop_s=stop_timeout,
    )
    token = _token(token_file)
    annotator = load(*models or (), threads=1)
    tally = Tally()
    library = Library.open(documents, tally) if documents is not None else Library()
    service = make_app(
        annotator,
        library=library,
        limits=limits,
        token=token,
        origins=allow_origin or (),
        hosts=local_names(host) if token is None else None,
        threads=threads,
        batch_tokens=batch_tokens,
    )
    with listening(host, port) as socket:
        if not quiet:
            stored = library.documents if documents is not None else None
            _announce([model.name for model in annotator.models], stored, host, socket.getsockname()[1])
        run(service, socket, limits=limits)


def _token(file: Path | None) -> str | None:
    """The token of a file, or of the environment; it is no option, which everyone on the machine could read."""
    token = file.read_text(encoding="utf-8").strip() if file is not None else os.environ.get(TOKEN, "").strip()
    if file is not None and not token:
        raise UsageError(f"{file}: it is empty; expected a token. Put a long random word in it.")
    return token or None


def _announce(models: Sequence[str], documents: int | None, host: str, port: int) -> None:
    """Say what is served, and where."""
    stored = "" if documents is None else f", {documents:,} documents"
    shown = f"[{host}]" if ":" in host else host
    print(f"serving  {', '.join(models)}{stored}", file=sys.stderr)
    print(f"at       http://{shown}:{port}/", file=sys.stderr, flush=True)
