"""Tables of the comparison with other tools: our results beside what their authors published."""

from typing import Any

from tables_of.results import rows, stored

# Sung et al. 2022 (Bioinformatics 38(20)), as Papers with Code lists it; scispaCy's documentation, en_ner_bc5cdr_md.
BERN2 = {"NCBI-disease": "88.6", "BC2GM": "83.7", "linnaeus": "92.7"}
SCISPACY = {"BC5CDR": "84.3"}
PUBLISHED = ("BioBERT-v1.1", "PubMedBERT-abs")
DOCUMENTS = 40_000_000


def comparison_accuracy() -> str:
    """Test F1 of the default model and of fine-tuned ones, beside other tools."""
    default = stored("default_scores")
    (encoder,) = stored("seed_spread")["models"].values()
    published = {row["task"]: row["paper"] for row in stored("fang2023_quick")["rows"]}
    lines = [
        (
            name,
            f"{default['seven'][name]['own']:.1f}",
            f"{encoder['sets'][name]['test']['mean']:.1f}",
            BERN2[name],
            "",
            *(f"{published[name][model]:.1f}" for model in PUBLISHED),
        )
        for name in BERN2
    ]
    both = f"{default['others']['BC5CDR']['f1']:.1f}"
    lines.append(("BC5CDR, both types", both, "", "", SCISPACY["BC5CDR"], "", ""))
    peers = ("BERN2 ¹", "scispaCy ²", "BioBERT in transformers ³", "PubMedBERT ³")
    return rows(("test F1", "Lexome, default model", "Lexome, fine-tuned", *peers), *lines)


def comparison_weak() -> str:
    """Where Lexome's scores are lowest, beside BioBERT as Fang et al. 2023 print it."""
    default, fang, separate = stored("default_scores"), stored("fang2023_quick"), stored("two_rates")
    tasks = {row["task"]: row for row in fang["rows"]}
    head_lr = separate["models"]["lexome-12x384"]["sets"]["HoC"]["test"]["mean"]
    default_head = {"set": "HoC", "encoder": "lexome-12x384", "head": "probe"}
    (probed,) = (row for row in stored("sentence_tasks")["rows"] if default_head.items() <= row.items())
    lines = [
        ("cell lines, BioRED, without rules", f"{default['others']['BioRED-NER']['CellLine']:.1f}", ""),
        ("Species-800", f"{default['seven']['s800']['own']:.1f}", _biobert(tasks["s800"])),
        ("relations, DDI-2013", _ours(tasks["DDI-2013"]), _biobert(tasks["DDI-2013"])),
        ("document classification, HoC", _ours(tasks["HoC"]), _biobert(tasks["HoC"])),
        ("HoC with a separate head learning rate", f"{head_lr:.1f}", _biobert(tasks["HoC"])),
        ("HoC with linear probing, now the default", f"{probed['test_mean']:.1f}", _biobert(tasks["HoC"])),
    ]
    return rows(("test F1", "Lexome", "BioBERT ³"), *lines)


def comparison_speed() -> str:
    """Our throughput and size, in the form in which others publish theirs."""
    annotating, serving, size = stored("annotate_speed"), stored("serve_load"), stored("install_size")
    rate, cores = serving["offline_docs_per_s"]["a process a core"], serving["server_cores"]
    ratios = [part["ways"]["lexome int8"]["times_pipeline"] for part in annotating["cores"].values()]
    whole = annotating["default"]["ways"]
    lines = [
        (
            "Lexome, default model, six types, without linking",
            f"{rate:.0f} abstracts/s on {cores} CPU cores (`serve_load`)",
        ),
        (
            f"the same for {DOCUMENTS // 1_000_000} M abstracts, extrapolated",
            f"{DOCUMENTS / rate * cores / 3600:,.0f} core hours; full texts take longer",
        ),
        (
            "Lexome beside transformers' pipeline, default model, all types, one core",
            f"{whole['lexome']['times_pipeline']:.1f} times as fast, with linking "
            f"{whole['lexome, with linking']['times_pipeline']:.1f} times (`annotate_speed`)",
        ),
        (
            "the same with one type",
            f"{ratios[0]:.1f} times as fast on one core, {ratios[1]:.1f} times on two (`annotate_speed`)",
        ),
        (
            "Lexome on disk",
            f"{size['megabytes']:.0f} MB with all dependencies, {size['model_megabytes']:.0f} MB of model and"
            f" {size['terms_megabytes']:.0f} MB of names (`install_size`)",
        ),
    ]
    return rows(("", "measured"), *lines)


def _ours(row: dict[str, Any]) -> str:
    return f"{row['ours']['lexome-12x384']['value']:.1f}"


def _biobert(row: dict[str, Any]) -> str:
    return f"{row['paper']['BioBERT-v1.1']:.1f}"


TABLES = {table.__name__: table for table in (comparison_accuracy, comparison_weak, comparison_speed)}
