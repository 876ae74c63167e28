"""How good predictions are: the field's measures on plain values, each equal to the program that defined it."""

from lexome.tasks.metrics.answers import Squad, squad
from lexome.tasks.metrics.bioasq import Factoid, ListAnswers, YesNo, bioasq_factoid, bioasq_list, bioasq_yesno
from lexome.tasks.metrics.class_sets import CLASS_SETS
from lexome.tasks.metrics.classes import MultiLabel, classification, multilabel, pooled
from lexome.tasks.metrics.conll_tags import conlleval, token_accuracy
from lexome.tasks.metrics.counts import Agreement, Counts, together
from lexome.tasks.metrics.gene_mentions import bc2gm
from lexome.tasks.metrics.numbers import accuracy, pearson, spearman
from lexome.tasks.metrics.scheme_tags import seqeval
from lexome.tasks.metrics.significance import (
    Interval,
    Paired,
    approximate_randomization,
    bootstrap_interval,
    count_rows,
    mean_of_rows,
    micro_f1,
    paired_bootstrap,
)
from lexome.tasks.metrics.spans import Mention, characters, mentions, spans_discontinuous, spans_relaxed, spans_strict

__all__ = [
    "CLASS_SETS",
    "Agreement",
    "Counts",
    "Factoid",
    "Interval",
    "ListAnswers",
    "Mention",
    "MultiLabel",
    "Paired",
    "Squad",
    "YesNo",
    "accuracy",
    "approximate_randomization",
    "bc2gm",
    "bioasq_factoid",
    "bioasq_list",
    "bioasq_yesno",
    "bootstrap_interval",
    "characters",
    "classification",
    "conlleval",
    "count_rows",
    "mean_of_rows",
    "mentions",
    "micro_f1",
    "multilabel",
    "paired_bootstrap",
    "pearson",
    "pooled",
    "seqeval",
    "spans_discontinuous",
    "spans_relaxed",
    "spans_strict",
    "spearman",
    "squad",
    "together",
    "token_accuracy",
]
