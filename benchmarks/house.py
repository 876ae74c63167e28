"""Structure of the code base: modules, lines, repeated names, and how much code each of six commands executes.

    python benchmarks/house.py --label before --source ../first-edition
    python benchmarks/house.py --label after       # when the second edition was finished
    python benchmarks/house.py --label now

`--source` is the root of the checkout to measure, by default this one. Its own `src`, `recipes/tiny` and `samples` are
used, and nothing of the package is imported by name but `lexome.cli`. Writes the numbers under the label into
results/house.json and keeps those of the other labels.

Static counts come from the syntax trees of src/lexome, so they are approximations where Python is dynamic:

- A single-user module is imported, at any level of its code, by exactly one other module. Modules that are looked up by
  name at run time (formats, recipe schemas) have fewer users here than in fact. __init__ and __main__ are not counted.
- A function called once is a function or method whose name is defined once in the package, called at one place and
  mentioned nowhere else; `import ... as` is followed. Calls are matched by name, so a method that shares its name with
  one of another library (`get`, `close`) seems to be called more often than it is. Dunder methods are not counted.

`annotate` is traced as shipped, with linking and rules, and plain, with the model alone, as it was when its goal was
set; editions without linking are plain as they are.

Traced commands run in a fresh process each, under sys.setprofile. A function counts once however often it runs, code
that runs while a module is being imported does not count, and a lambda or comprehension belongs to its function.
"""

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from facts import facts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "house.json"
LABELS = ("before", "after", "now")
SPECIAL = {"__init__", "__main__"}

GOALS = {
    "modules": 200,
    "lines": 46_500,
    "repeated_basenames": 10,
    "annotate.modules": 18,
    "annotate-plain.modules": 18,
    "finetune.modules": 35,
}
STATIC_ROWS = {
    "modules": "modules",
    "lines": "lines of Python",
    "single_user_modules": "single-user modules",
    "repeated_basenames": "modules with a repeated basename",
    "repeated_class_names": "class names defined more than once",
    "functions": "functions and methods",
    "functions_called_once": "functions called once",
}

TEXT = "Mutations of BRCA1 raise the risk of breast cancer, and olaparib is given to patients who carry them."
TINY = "recipes/tiny"
PLAIN = "annotate-plain"
# Every command in the order in which it is run, and whether it is traced. The others make what the traced ones read.
# A pool of worker processes would hide work from the profiler, so files are read in this process.
COMMANDS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("annotate", ("annotate", TEXT), True),
    (PLAIN, ("annotate", TEXT, "--no-link", "--no-rule", "all", "--overlaps", "keep"), True),
    ("build", ("build", f"{TINY}/build.toml", "--workers", "0"), True),
    ("learn-vocab", ("learn-vocab", f"{TINY}/vocab.toml"), False),
    ("shard", ("shard", f"{TINY}/shard.toml"), False),
    ("pretrain", ("pretrain", f"{TINY}/pretrain.toml"), True),
    ("finetune", ("finetune", f"{TINY}/finetune.toml"), True),
    (
        "reproduce",
        ("reproduce", "toy.toml", "--model", "tiny=tiny/pretrained/model", "--data", "data", "--device", "cpu"),
        True,
    ),
)
TRACED = tuple(name for name, _, traced in COMMANDS if traced)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the structure of the code base.")
    parser.add_argument("--source", type=Path, default=ROOT, metavar="FOLDER", help="root of the checkout to measure")
    parser.add_argument("--label", choices=LABELS, required=True, help="key of the numbers in results/house.json")
    options = parser.parse_args()
    source = options.source.resolve()
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    stored[options.label] = {
        "facts": facts("click", "numpy", "onnxruntime", "pydantic", "torch", "typer") | {"revision": revision(source)},
        "static": measure_static(source / "src" / "lexome"),
        "commands": trace_commands(source),
    }
    stored = {"goals": GOALS} | {label: stored[label] for label in LABELS if label in stored}
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    print(table(stored))


def table(stored: Mapping[str, Any]) -> str:
    """The stored numbers side by side, with the goals."""
    labels = [label for label in LABELS if label in stored]
    rows = [("", *labels, "goal")]
    for key, title in STATIC_ROWS.items():
        numbers = (f"{stored[label]['static'][key]:,}" for label in labels)
        rows.append((title, *numbers, _goal(key)))
    for command in TRACED:
        for key in ("modules", "functions"):
            rows.append(
                (
                    f"{command}: {key} executed",
                    *(_count(stored[label]["commands"].get(command), key) for label in labels),
                    _goal(f"{command}.{key}"),
                )
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )


def _count(command: Mapping[str, Any] | None, key: str) -> str:
    return f"{command[key]:,}" if command is not None else ""


def _goal(key: str) -> str:
    return f"≤ {GOALS[key]:,}" if key in GOALS else ""


def revision(source: Path) -> str | None:
    """The git revision of a checkout, with "+changes" where its code, recipes or samples differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=source, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", "src", "recipes", "samples")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changed else "")


# Static counts


@dataclass
class Module:
    """One parsed file of the package, with the names that its imports bind to functions and classes of the package."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """What relative imports in this module start from."""
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]


def measure_static(package: Path) -> dict[str, object]:
    """The counts in STATIC_ROWS, and the names behind those that are meant to shrink."""
    if not (package / "__init__.py").is_file():
        raise SystemExit(f"error: {package} is no package; expected --source to name the root of a checkout.")
    modules = [parse(path, package) for path in sorted(package.rglob("*.py"))]
    users = importers(modules)
    named = [module for module in modules if module.path.stem not in SPECIAL]
    basenames = Counter(module.path.stem for module in named)
    classes = Counter(
        node.name for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    )
    single_user = [module.name for module in named if len(users[module.name]) == 1]
    repeated = {name: count for name, count in sorted(basenames.items()) if count > 1}
    repeated_classes = {name: count for name, count in sorted(classes.items()) if count > 1}
    definitions, called_once = function_counts(modules)
    return {
        "modules": len(modules),
        "lines": sum(module.lines for module in modules),
        "single_user_modules": len(single_user),
        "repeated_basenames": sum(repeated.values()),
        "repeated_class_names": len(repeated_classes),
        "functions": definitions,
        "functions_called_once": len(called_once),
        "names": {"repeated_basenames": repeated, "repeated_class_names": repeated_classes},
    }


def parse(path: Path, package: Path) -> Module:
    """The module in a file."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(text, str(path)), text.count("\n"))


def importers(modules: list[Module]) -> dict[str, set[str]]:
    """The modules that import each module. Fills in the aliases of all modules on the way."""
    known = {module.name for module in modules}
    users: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for target, name, alias in imports(module):
            submodule = f"{target}.{name}"
            imported = submodule if submodule in known else target
            if imported in known and imported != module.name:
                users[imported].add(module.name)
            if name and target in known and submodule not in known:
                module.aliases[alias] = name
    return users


def imports(module: Module) -> Iterator[tuple[str, str, str]]:
    """Every import of a module as (module, name in it or "", name it is bound to)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                yield item.name, "", item.asname or item.name
        elif isinstance(node, ast.ImportFrom):
            target = node.module or ""
            if node.level:
                base = module.package.split(".")
                target = ".".join([*base[: len(base) - node.level + 1], *filter(None, [target])])
            for item in node.names:
                yield target, item.name, item.asname or item.name


def function_counts(modules: list[Module]) -> tuple[int, list[str]]:
    """The number of functions and methods, and the names of those called at one place and used nowhere else."""
    definitions: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    mentions: Counter[str] = Counter()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                definitions[node.name] += 1
            elif isinstance(node, ast.Call):
                calls[_referenced(node.func, module)] += 1
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                mentions[_referenced(node, module)] += 1
    called_once = [
        name
        for name, count in definitions.items()
        if count == 1 and calls[name] == mentions[name] == 1 and not (name.startswith("__") and name.endswith("__"))
    ]
    return sum(definitions.values()), sorted(called_once)


def _referenced(node: ast.expr, module: Module) -> str:
    """The name of the function that an expression refers to, as it is defined; "" where it is no name."""
    if isinstance(node, ast.Name):
        return module.aliases.get(node.id, node.id)
    return node.attr if isinstance(node, ast.Attribute) else ""


# Traced commands


def trace_commands(source: Path) -> dict[str, dict[str, object]]:
    """Modules and functions of lexome that each traced command executes, with the recipes of its own tree."""
    if not (source / "src" / "lexome" / "default_model").is_dir():
        raise SystemExit(f"error: {source} has no src/lexome/default_model, which annotate needs; check it out first.")
    counts: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("samples", "recipes"):
            (folder / name).symlink_to(source / name)
        write_toy_study(folder, source)
        for name, arguments, traced in COMMANDS:
            if name == PLAIN and not (source / "src" / "lexome" / "concepts").is_dir():
                continue
            print(f"running {name} ...", file=sys.stderr)
            executed = run_traced(arguments, folder, source)
            if traced:
                counts[name] = {
                    "modules": len(executed),
                    "functions": sum(map(len, executed.values())),
                    "executed": {module: len(functions) for module, functions in sorted(executed.items())},
                }
    return counts


def write_toy_study(folder: Path, source: Path) -> None:
    """toy.toml, a study of one task, and data/, its dataset of a few sentences."""
    published = tomllib.loads((source / "studies" / "lee2020.toml").read_text(encoding="utf-8"))
    protocol, task = next(iter(published["protocols"].values())), published["tasks"][0]
    # The two editions differ in these keys.
    description = "about" if "about" in protocol else "description"
    dataset = "set" if "set" in task else "dataset"
    (folder / "toy.toml").write_text(
        f"""\
stage = "reproduce"
name = "toy"
title = "A toy study"
paper = "None"

[protocols.plain]
{description} = "Two epochs, the mean of two seeds."
[protocols.plain.recipe]
epochs = 2
seeds = [0, 1]
score_test = "every"
batch = {{ sequences = 8 }}

[[tasks]]
name = "NCBI-disease"
{dataset} = "NCBI-disease"
protocol = "plain"

[[averages]]
name = "all"
of = ["NCBI-disease"]

[[reported]]
table = "1"
model = "theirs"
[reported.values]
NCBI-disease = 50.0
all = 50.0
""",
        encoding="utf-8",
    )
    sentences = (
        ("Aspirin", "relieves", "migraine"),
        ("Olaparib", "treats", "cancer"),
        ("Statins", "prevent", "stroke"),
    )
    lines = "\n".join(f"{drug}\tO\n{verb}\tO\n{disease}\tB\n.\tO\n" for drug, verb, disease in sentences * 4)
    (folder / "data" / "NCBI-disease").mkdir(parents=True)
    for split in ("train", "devel", "test"):
        (folder / "data" / "NCBI-disease" / f"{split}.tsv").write_text(lines, encoding="utf-8")


def run_traced(arguments: tuple[str, ...], folder: Path, source: Path) -> dict[str, list[str]]:
    """The functions of each module that a command executes, run by this script in a process of its own."""
    report = folder / "trace.json"
    environment = os.environ | {"PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), TRACE, str(report), str(source), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise SystemExit(f"error: lexome {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    executed: dict[str, list[str]] = json.loads(report.read_text(encoding="utf-8"))
    return executed


TRACE = "--trace-command"


def trace(report: Path, source: Path, arguments: list[str]) -> None:
    """Run one command in this process and write the functions of lexome that it executed."""
    package = str(source / "src" / "lexome") + os.sep
    executed: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in executed or not code.co_filename.startswith(package):
            return
        # Bodies of modules and classes are not optimized code; functions, lambdas and comprehensions are.
        if code.co_flags & inspect.CO_OPTIMIZED and not _importing(frame, package):
            executed.add(code)

    import lexome.cli

    if not (lexome.cli.__file__ or "").startswith(package):
        raise SystemExit(f"lexome was imported from {lexome.cli.__file__}; expected it in {package}.")
    exit_code: str | int | None = None
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        lexome.cli.app(arguments)
    except SystemExit as end:
        exit_code = end.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if exit_code:
        raise SystemExit(exit_code)
    functions: dict[str, set[str]] = defaultdict(set)
    for code in executed.copy():
        if name := _enclosing_function(code.co_qualname):
            functions[code.co_filename.removeprefix(package)].add(name)
    report.write_text(json.dumps({path: sorted(names) for path, names in functions.items()}), encoding="utf-8")


def _importing(frame: FrameType, package: str) -> bool:
    """Whether a call was made by the code of a module of the package that is being imported."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(package):
            return True
        caller = caller.f_back
    return False


def _enclosing_function(qualified_name: str) -> str:
    """The function that a lambda or comprehension is in, "" where that is a module or class; others as they are.

    >>> _enclosing_function("run.<locals>.<listcomp>"), _enclosing_function("run.<locals>.step")
    ('run', 'run.<locals>.step')
    >>> _enclosing_function("Table.<lambda>")
    ''
    """
    while qualified_name.endswith(">"):
        outer, _, _ = qualified_name.rpartition(".")
        if not outer.endswith(".<locals>"):
            return ""
        qualified_name = outer.removesuffix(".<locals>")
    return qualified_name


if __name__ == "__main__":
    if sys.argv[1:2] == [TRACE]:
        trace(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
    else:
        main()
