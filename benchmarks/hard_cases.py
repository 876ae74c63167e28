"""What the linker says on the hard cases of tests/concepts/hard_cases.toml, for the page of them.

    python benchmarks/hard_cases.py

Writes results/hard_cases.json.
"""

import json
import sys
import tomllib

from facts import ROOT, facts

sys.path.insert(0, str(ROOT / "tests" / "concepts"))

from small_terms import marked

from lexome.concepts.linker import Linker


def main() -> None:
    linker = Linker.load()
    cases = tomllib.loads((ROOT / "tests" / "concepts" / "hard_cases.toml").read_text(encoding="utf-8"))["case"]
    for case in cases:
        case["said"] = [list(span.concepts) for span in linker.link(marked(case["text"])).spans]
    right = sum(case["said"] == case["expected"] for case in cases)
    result = {"cases": cases, "right": right, "facts": facts("lexome")}
    (ROOT / "results" / "hard_cases.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"{right} of {len(cases)}")


if __name__ == "__main__":
    main()
