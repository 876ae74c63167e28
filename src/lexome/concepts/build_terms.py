"""build-terms: read dictionaries, join their terms into concepts, and write the index."""

import hashlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import lexome
from lexome.concepts.index import TermIndex
from lexome.concepts.index_writer import write_index
from lexome.concepts.names import fold_name, name_key
from lexome.concepts.ranking import is_misspelling
from lexome.concepts.sources import SourceOptions, read_terms, to_curie
from lexome.concepts.terms import Entry, Term, TermTable
from lexome.document import Document, Passage
from lexome.errors import FormatError, UsageError
from lexome.files import file_sha256, fingerprint
from lexome.formats import Tally, write
from lexome.progress import progress
from lexome.recipe.corpus_stages import Dictionary, Mapping, TermsRecipe

# Keys that do not decide what is in the index; the contents of the dictionaries are part of the fingerprint.
_PLACES: Any = {
    "out": True,
    "data": True,
    "overwrite": True,
    "dictionaries": {"__all__": {"data"}},
    "synonyms": {"out"},
}


@dataclass(frozen=True)
class DictionarySummary:
    """Counts of a dictionary: terms read, terms that joined concepts of earlier ones, and drops by reason."""

    name: str
    terms: int
    joined: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class TermsResult:
    """The index that was built; `new` is False if it already existed. `pairs` counts synonyms, if they were written."""

    path: Path
    new: bool
    bytes: int
    sha256: str
    concepts: dict[str, int]
    names: dict[str, int]
    dictionaries: tuple[DictionarySummary, ...]
    dropped: dict[str, int]
    pairs: int | None = None

    def markdown(self) -> str:
        """Tables of dictionaries and types, and what was dropped."""
        lines = ["| dictionary | terms | joined | dropped |", "| --- | ---: | ---: | ---: |"]
        lines += [
            f"| {row.name} | {row.terms:,} | {row.joined:,} | {sum(row.dropped.values()):,} |"
            for row in self.dictionaries
        ]
        lines += ["", "| type | concepts | names |", "| --- | ---: | ---: |"]
        lines += [f"| {type} | {count:,} | {self.names[type]:,} |" for type, count in self.concepts.items()]
        dropped = sum((Counter(row.dropped) for row in self.dictionaries), Counter(self.dropped))
        if dropped:
            lines += ["", "| dropped or changed | count |", "| --- | ---: |"]
            lines += [f"| {reason} | {count:,} |" for reason, count in sorted(dropped.items())]
        return "\n".join(lines)


def build_terms(recipe: TermsRecipe, *, progress_shown: bool = True) -> TermsResult:
    """Build the index of a recipe, unless the file already is the index of the same recipe and dictionaries.

    With a table of synonyms, their pairs are written too.
    """
    table = recipe.synonyms
    if table is None:
        return _build_index(recipe, progress_shown=progress_shown)
    if table.out.exists() and not (recipe.out.exists() or recipe.overwrite):
        message = f"{table.out}: exists. Move it, choose another synonyms.out, or set overwrite = true."
        raise UsageError(message, code="foreign-output", value=table.out)
    result = _build_index(recipe, progress_shown=progress_shown)
    if table.out.exists() and not result.new:
        return result
    index = TermIndex.open(recipe.out)
    pairs = synonym_pairs(index, types=table.types or index.types, max_pairs=table.max_pairs)
    write(table.out, pairs, tally=(tally := Tally()))
    return replace(result, pairs=tally.written)


def _build_index(recipe: TermsRecipe, *, progress_shown: bool) -> TermsResult:
    files = dict(_input_files(recipe))
    inputs = {name: _content_hash(paths) for name, paths in files.items()}
    settings = recipe.model_dump(mode="json", exclude=_PLACES)
    if recipe.synonyms is None:
        del settings["synonyms"]
    identity = fingerprint(settings, inputs)
    if (existing := _existing_index(recipe, identity)) is not None:
        return existing
    builder = _Builder(recipe, files, progress_shown)
    for source, dictionary in enumerate(recipe.dictionaries):
        builder.add(dictionary, source)
    types = sorted({entry.type for entry in builder.table})
    for key, named in (("near", recipe.near), ("synonyms.types", recipe.synonyms.types if recipe.synonyms else ())):
        if unknown := sorted(set(named) - set(types)):
            message = f"{key} has {unknown[0]!r}; expected some of {', '.join(types)}."
            raise UsageError(message, code="unknown-type", value=unknown[0])
    described = [
        {
            **dictionary.model_dump(mode="json", include={"name", "license", "version", "url"}),
            "sha256": inputs[dictionary.name],
            **{key: value for key, value in asdict(summary).items() if key != "name"},
        }
        for dictionary, summary in zip(recipe.dictionaries, builder.summaries, strict=True)
    ]
    provenance = {"fingerprint": identity, "lexome": lexome.__version__}
    write_index(recipe.out, builder.table, described, near=recipe.near, provenance=provenance)
    return _result(TermIndex.open(recipe.out), recipe.out, new=True)


def _result(index: TermIndex, path: Path, *, new: bool) -> TermsResult:
    header = index.header
    return TermsResult(
        path,
        new,
        path.stat().st_size,
        file_sha256(path),
        header["counts"]["concepts"],
        header["counts"]["names"],
        tuple(
            DictionarySummary(row["name"], row["terms"], row["joined"], row["dropped"]) for row in index.dictionaries
        ),
        header["counts"]["dropped"],
    )


def _existing_index(recipe: TermsRecipe, identity: str) -> TermsResult | None:
    """The index of an earlier run of the same recipe; UsageError for any other file."""
    out = recipe.out
    if not out.exists() or recipe.overwrite:
        return None
    try:
        index = TermIndex.open(out)
    except FormatError as error:
        if error.code == "not-an-index":
            message = f"{out}: exists and was not written by `lexome build-terms`. Move it, or choose another out."
            raise UsageError(message, code="foreign-output", value=out) from error
        return None  # damaged, or of another version: nothing to keep
    if index.header.get("provenance", {}).get("fingerprint") == identity:
        return _result(index, out, new=False)
    raise UsageError(
        f"{out}: holds an index of another recipe or of other dictionaries. "
        "Choose another out, or set overwrite = true (--set overwrite=true).",
        code="other-settings",
        value=out,
    )


def synonym_pairs(index: TermIndex, *, types: Iterable[str], max_pairs: int) -> Iterator[Document]:
    """Documents of two names of one concept each, a passage and a sentence for each name.

    Names that agree but for case, punctuation or plurals count once. The order of a concept's names depends on its id
    alone, and each name is in two pairs at most.
    """
    for concept in chain.from_iterable(map(index.concepts, types)):
        names = list({name_key(name): name for name in reversed(concept.names)}.values())
        random.Random(concept.id).shuffle(names)
        following = zip(names, names[1:] + names[:1] * (len(names) > 2), strict=False)
        for number, (first, second) in enumerate(islice(following, max_pairs)):
            start = len(first) + 1
            passages = (
                Passage(0, first, sentences=((0, len(first)),)),
                Passage(start, second, sentences=((start, start + len(second)),)),
            )
            yield Document(f"{concept.id}/{number}", passages)


def _input_files(recipe: TermsRecipe) -> Iterator[tuple[str, list[Path]]]:
    """The files of each dictionary and mapping, by name."""
    for dictionary in recipe.dictionaries:
        yield dictionary.name, [(dictionary.data or recipe.data) / path for path in dictionary.paths]
    for mapping in recipe.mappings:
        yield f"mapping {mapping.name}", [recipe.data / mapping.path]


def _content_hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise FormatError(
                f"{path}: cannot be opened ({error.strerror}). Check paths and data in the recipe.",
                code="unreadable-file",
                value=path,
            ) from error
    return digest.hexdigest()


@dataclass
class _Builder:
    """The concepts so far, to which dictionaries are added in order."""

    recipe: TermsRecipe
    files: dict[str, list[Path]]
    progress_shown: bool
    summaries: list[DictionarySummary] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = self._new_table()
        self._mappings = {mapping.name: _read_mapping(self.recipe, mapping) for mapping in self.recipe.mappings}

    def _new_table(self) -> TermTable:
        limits = {"max_name_characters": self.recipe.max_name_characters, "max_names": self.recipe.max_names}
        return TermTable(**limits)

    def add(self, dictionary: Dictionary, source: int) -> None:
        """Read a dictionary, and join its terms to concepts."""
        own = self._new_table()
        for term in _filter_names(self._read(dictionary, own.dropped), dictionary, own.dropped):
            own.add(term, source)
        if not own.entries:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in own.dropped.most_common(3))
            raise FormatError(
                f"dictionary {dictionary.name}: no terms in {', '.join(map(str, dictionary.paths))}"
                f"{f' ({reasons})' if reasons else ''}. Check format, columns, rows and type.",
                code="no-terms",
                value=dictionary.name,
            )
        if "name" not in dictionary.columns and dictionary.type == "Species":
            _order_names(own)
        if dictionary.format == "gene-info":
            _add_shorter_names(own, dictionary.exclude_names)
        before = Counter(self.table.dropped)
        join = _Join(self.table, dictionary, [self._mappings[name] for name in dictionary.mappings])
        joined = sum(map(join.add, own))
        dropped = own.dropped + (self.table.dropped - before) + join.dropped
        self.summaries.append(DictionarySummary(dictionary.name, len(own), joined, dict(sorted(dropped.items()))))

    def _read(self, dictionary: Dictionary, dropped: Counter[str]) -> Iterator[Term]:
        options = SourceOptions(
            dictionary.type,
            dictionary.prefix,
            dictionary.taxon,
            frozenset(dictionary.taxa),
            dictionary.columns,  # type: ignore[arg-type]  # keys are literals
            dictionary.rows,
            dictionary.synonyms,
            dictionary.split,
        )
        paths = self.files[dictionary.name]
        total = sum(path.stat().st_size for path in paths)
        tally = Tally()
        with progress(
            dictionary.name, total=total, position=lambda: tally.bytes_read, shown=self.progress_shown
        ) as watched:
            for path in paths:
                yield from watched(read_terms(path, dictionary.format, options, tally=tally, dropped=dropped))


# "Escherichia coli", and "E. coli" or "E.coli".
_LATIN = r" [a-z-]*(?:[ai]|ae|[aeo]ns|ense|[ai]le|are|ax|es|ex|er|is|ix|o|or|os|um|us)"
_BINOMIAL = re.compile(rf"[A-Z][a-z]+(?:{_LATIN}){{1,2}}")
_ABBREVIATED = re.compile(r"[A-Z]\. ?\w")


def _order_names(species: Iterable[Entry]) -> None:
    """Put the name that is most likely in use first, of species whose dictionary does not say which one it prefers.

    Latin binomials precede other names, and those with initials are last. What has a plural is no binomial ("Giant
    panda"). Of several binomials the one in use is mostly that which the dictionary also abbreviates, has with strains
    and misspells; a genus of no other species is misspelled.
    """
    entries = list(species)
    genera = Counter(genus for entry in entries for genus in {name.partition(" ")[0] for name in entry.names})

    def rank(name: str, names: Set[str]) -> tuple[int, ...]:
        if _ABBREVIATED.match(name):
            return (3,)
        if _BINOMIAL.fullmatch(name) is None or names & {f"{name}s", name.removesuffix("s")} - {name}:
            return (1,) if " " in name else (2,)
        forms = sum(other.startswith(f"{name} ") or is_misspelling(name, other) for other in names if other != name)
        abbreviation = f"{name[0]}. {name.partition(' ')[2]}"
        return 0, -forms - (abbreviation in names), genera[name.partition(" ")[0]] == 1

    for entry in entries:
        names = entry.names.keys()
        entry.names = dict.fromkeys(sorted(names, key=lambda name: rank(name, names)))


# What dictionaries add to the names of genes, after them: "delta-like 4 (Drosophila)", "phosphodiesterase 4D,
# cAMP-specific". Not "subunit", "member 2" or "beta", which tell genes apart.
_ADDED = re.compile(
    r"\s*\([^()]*\)$|\s*\[[^\[\]]*\]$|(?<=\d) antigen$|,?\s+(?:homolog(?:ue)?(?: of)?|ortholog)$|,\s*(?:[\w'/+-]+[- ]"
    r"(?:specific|linked|dependent|associated|related|like|binding|activated|induced|sensitive|regulated|derived)"
    r"(?: \w+)?|mitochondrial|cytoplasmic|cytosolic|soluble|peroxisomal|lysosomal|neuronal|axonemal|centromeric"
    r"|secreted|plasma|serum|cardiac|skeletal muscle|E3 ubiquitin protein ligase|member RAS oncogene family|catalytic"
    r"|putative|yeast"
    r"|cell surface associated|apoptosis-related cysteine peptidase|G protein-coupled|[Dd]rosophila|mouse)$"
)
# The gene of another species that a human one is named after: its symbol alone is not the human gene's.
_NAMESAKE = re.compile(r"[A-Z]\. ?[a-z]+|yeast|[Dd]rosophila|mouse|chicken|zebrafish|Chlamydomonas|[Xx]enopus|homolog")
# Genes that texts hardly name, by words of their names: none of them gets shorter names.
_UNNAMED = re.compile(
    r"\b(?:pseudogene|tRNA|transfer RNA|antisense RNA|readthrough|non-functional|blood group|fragile site)"
    r"|\b(?:variable|joining|diversity|constant)\b.*\d|\bRNA\b.*\b(?:small nuclear|small nucleolar)"
)
# What may follow the name of a gene in the name of another one without making it the name of a family.
_NO_MEMBER = re.compile(
    "homolog|like|protein|gene|pseudogene|antigen|antisense|isoform|precursor|receptor|ligand|inhibitor|antagonist"
    "|interacting|binding|associated|related|induced|inducible|dependent|activated|regulated"
)
_MIN_SHORTER = 5


def _add_shorter_names(genes: TermTable, excluded: str | None) -> None:
    """Add the names of genes without what dictionaries add to them: "delta-like 4", "CD105", "phosphodiesterase 4D".

    Only names that are of one gene of the species, and of no family of genes.
    """
    names_of: defaultdict[tuple[str | None, str], set[str]] = defaultdict(set)
    shorter: list[tuple[Entry, str]] = []
    for entry in genes:
        for name in entry.names:
            names_of[entry.taxon, name_key(name)].add(entry.id)
        if not any(map(_UNNAMED.search, entry.names)):
            known = set(map(name_key, entry.names))
            found = (short for name in entry.names for short in _shorter_names(name))
            shorter += [(entry, short) for short in found if name_key(short) not in known]
    for entry, short in shorter:
        names_of[entry.taxon, name_key(short)].add(entry.id)
    families = _families({fold_name(short) for _, short in shorter}, genes)
    ignored = re.compile(excluded) if excluded is not None else None
    for entry, short in shorter:
        if len(names_of[entry.taxon, name_key(short)]) > 1 or families[fold_name(short)] - {entry.id}:
            continue
        if ignored is None or ignored.fullmatch(short) is None:
            entry.names.setdefault(short)


def _families(names: Set[str], genes: Iterable[Entry]) -> defaultdict[str, set[str]]:
    """The genes with longer names that have one of these in them: "alkaline phosphatase, intestinal".

    A name that ends in a number is that of a family only where others go on after it.
    """
    members: defaultdict[str, set[str]] = defaultdict(set)
    beginnings = {name.partition(" ")[0] for name in names}
    for entry in genes:
        for name in entry.names:
            words = fold_name(name).split() if " " in name and _UNNAMED.search(name) is None else []
            for first, word in enumerate(words):
                for end in range(first + 1, len(words) + 1) if word in beginnings else ():
                    goes_on = end < len(words) and _NO_MEMBER.fullmatch(words[end]) is None
                    is_end = first > 0 and end == len(words) and not _is_number(words[end - 1])
                    if (goes_on or is_end) and (part := " ".join(words[first:end])) in names:
                        members[part].add(entry.id)
    return members


def _is_number(word: str) -> bool:
    return len(word) <= 2 or any(map(str.isdigit, word))


def _shorter_names(name: str) -> Iterator[str]:
    """The name without its last addition, without the last two, and so on."""
    while (shorter := _ADDED.sub("", name).strip(" ,;")) != name and len(shorter) >= _MIN_SHORTER:
        added = name[len(shorter) :]
        if " " in shorter or (added.endswith((")", "antigen")) and _NAMESAKE.search(added) is None):
            yield shorter
        name = shorter


def _filter_names(terms: Iterable[Term], dictionary: Dictionary, dropped: Counter[str]) -> Iterator[Term]:
    """The terms that the recipe does not exclude, without the names and cross-references that it excludes."""
    unwanted = None if dictionary.exclude_terms is None else re.compile(dictionary.exclude_terms)
    excluded = None if dictionary.exclude_names is None else re.compile(dictionary.exclude_names)
    prefixes = dictionary.xref_prefixes
    for term in terms:
        if unwanted is not None and unwanted.fullmatch(term.name):
            dropped["term excluded by the recipe"] += 1
            continue
        if excluded is not None:
            kept = tuple(name for name in term.names if excluded.fullmatch(name) is None)
            name = "" if excluded.fullmatch(term.name) else term.name
            dropped["name excluded by the recipe"] += len(term.names) - len(kept) + (name != term.name)
            if not (name or kept):
                continue
            term = replace(term, name=name, names=kept)
        if prefixes is not None:
            xrefs = tuple(xref for xref in term.xrefs if xref.partition(":")[0] in prefixes)
            term = replace(term, xrefs=xrefs)
        yield term


class _Join:
    """Adds the entries of one dictionary to the concepts that they belong to, or as concepts of their own."""

    def __init__(self, table: TermTable, dictionary: Dictionary, mappings: list[dict[str, list[str]]]) -> None:
        self.dropped: Counter[str] = Counter()
        self._table = table
        self._ways = dictionary.join
        self._unjoined = dictionary.unjoined
        self._mappings = mappings
        self._by_xref: defaultdict[str, list[str]] = defaultdict(list)
        self._by_name: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for entry in table if "xrefs" in self._ways else ():
            for xref in entry.xrefs:
                self._by_xref[xref].append(entry.id)
        self._preferred = {
            (entry.type, fold_name(next(iter(entry.names)))): entry.id
            for entry in (table if dictionary.drop_preferred_names else ())
        }
        # Before anything is added: names of one dictionary do not join its own terms.
        for entry in table if "names" in self._ways else ():
            for folded in {fold_name(name) for name in entry.names}:
                self._by_name[entry.type, folded].append(entry.id)

    def add(self, entry: Entry) -> bool:
        """Add an entry; whether it joined a concept of an earlier dictionary."""
        mapped = list(dict.fromkeys(target for mapping in self._mappings for target in mapping.get(entry.id, ())))
        for target in self._targets(entry, mapped):
            self._add_as(entry, target)
            return True
        if self._unjoined == "keep" or (mapped and self._unjoined == "keep-mapped"):
            self._add_as(entry, mapped[0] if mapped else entry.id)
        else:
            self.dropped["term that joins no concept"] += 1
        return False

    def _targets(self, entry: Entry, mapped: list[str]) -> Iterator[str]:
        """The concepts to join, the best first."""
        for way in self._ways:
            if way == "id":
                found = [*mapped, entry.id]
            elif way == "xrefs":
                found = [*entry.xrefs, *self._by_xref.get(entry.id, ())]
            else:
                found = self._with_names_of(entry)
            for curie in found:
                known = self._table.entries.get(curie)
                if known is not None and known.type == entry.type:
                    yield curie

    def _with_names_of(self, entry: Entry) -> list[str]:
        """The concept that has most of the entry's names; none where two have equally many."""
        votes = Counter(
            curie
            for folded in {fold_name(name) for name in entry.names}
            for curie in self._by_name.get((entry.type, folded), ())
        )
        ranked = votes.most_common(2)
        if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
            self.dropped["term with names of several concepts"] += 1
            return []
        return [curie for curie, _ in ranked[:1]]

    def _add_as(self, entry: Entry, curie: str) -> None:
        preferred, *others = entry.names
        is_new = curie not in self._table.entries
        names = tuple(
            name for name in (others if is_new else entry.names) if not self._is_other(name, entry.type, curie)
        )
        xrefs = tuple(xref for xref in (entry.id, *entry.xrefs) if xref != curie)
        term = Term(curie, entry.type, preferred if is_new else "", names, entry.taxon, xrefs)
        self._table.add(term, entry.source)

    def _is_other(self, name: str, type: str, curie: str) -> bool:
        """Whether a name is the preferred one of another concept of the vocabulary: "diarrhea" of dysentery."""
        owner = self._preferred.get((type, fold_name(name)), curie) if self._preferred else curie
        if owner == curie or owner.partition(":")[0] != curie.partition(":")[0]:
            return False
        self.dropped["name that another concept prefers"] += 1
        return True


def _read_mapping(recipe: TermsRecipe, mapping: Mapping) -> dict[str, list[str]]:
    """Ids and the ids that they are mapped to."""
    options = SourceOptions(
        "mapping",
        mapping.prefixes[0],
        columns={"id": mapping.columns[0], "name": mapping.columns[1]},
        rows=mapping.rows,
    )
    pairs: defaultdict[str, list[str]] = defaultdict(list)
    for term in read_terms(recipe.data / mapping.path, "tsv", options, tally=Tally(), dropped=Counter()):
        pairs[term.id].append(to_curie(term.name, mapping.prefixes[1]))
    if not pairs:
        raise FormatError(
            f"mapping {mapping.name}: no ids in {mapping.path}. Check columns and rows.",
            code="no-terms",
            value=mapping.name,
        )
    return dict(pairs)
