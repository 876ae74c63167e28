"""Files in memory, for readers of formats."""

import io

from lexome.formats.streams import Source


def source_of(name: str, content: str | bytes, **options: int) -> Source:
    """An opened file with this name and content; `options` are those of Source."""
    raw = content.encode() if isinstance(content, str) else content
    return Source(name, io.BufferedReader(io.BytesIO(raw)), **options)  # type: ignore[arg-type]


def sources_of(*files: tuple[str, str | bytes]) -> list[Source]:
    """Opened files, each given by its name and content."""
    return [source_of(name, content) for name, content in files]
