# `make run` and `make test` set up their own environments; they need Python 3.11+ and make.

PYTHON ?= python3
LIGHT := .venv
DEV := .venv-dev
OUT := build/run

# Folder of the datasets that the default model is trained on.
DATA ?= ../shared/data/benchmarks
HELD_OUT := BC5CDR NCBI-disease-pubtator BioRED-NER NLM-Gene SPECIES-pubtator

.PHONY: run test check chromium types pages bench tables nightly default-model encoder relations reader clean

# Installs the light package and annotates the sample abstracts, in the terminal and as an HTML page.
run: $(LIGHT)/ready
	@mkdir -p $(OUT)
	$(LIGHT)/bin/lexome annotate samples/abstracts.jsonl
	$(LIGHT)/bin/lexome annotate samples/abstracts.jsonl --out $(OUT)/abstracts.html --quiet
	@echo "Open $(OUT)/abstracts.html in a browser."

# All static checks, all code blocks in the docs, then all tests.
test: check chromium
	$(DEV)/bin/pytest -n 2 --dist worksteal --reruns 2 -r aR tests

check: $(DEV)/ready
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types pages

# Installs the browser for the tests of the web page if possible; otherwise those tests are skipped with a message.
chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	if ! command -v apt-get > /dev/null; then why="apt-get not found"; \
	elif [ "$$(id -u)" = 0 ]; then as="env DEBIAN_FRONTEND=noninteractive"; \
	elif sudo -n true 2> /dev/null; then as="sudo -n env DEBIAN_FRONTEND=noninteractive"; \
	else why="requires root or passwordless sudo"; fi; \
	if [ -z "$$why" ]; then \
	  get="$$as apt-get -qq install --no-install-recommends -y chromium fonts-dejavu-core"; \
	  { $$get || { $$as apt-get -qq update && $$get; }; } < /dev/null > /dev/null 2>&1 && exit 0; why="apt-get failed"; \
	fi; \
	echo "Chromium was not installed ($$why): the tests of the web page will be skipped."

types: $(DEV)/ready
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports

# Builds the documentation and runs every code block in it; the blocks of a page belong together.
pages: $(DEV)/ready
	$(DEV)/bin/mkdocs build --strict --quiet
	$(DEV)/bin/pytest --quiet -n 2 --dist loadfile -p no:hypothesispytest README.md docs

# Property-based tests with 20,000 examples each, large cases, and the small ones again at their large size.
nightly: $(DEV)/ready
	LEXOME_HYPOTHESIS=nightly $(DEV)/bin/pytest -n 2 -m "property and not nightly"
	LEXOME_HYPOTHESIS=nightly $(DEV)/bin/pytest -m nightly
	LEXOME_HYPOTHESIS=nightly $(DEV)/bin/pytest tests/training/test_parallel.py tests/datasets/test_sets_real.py tests/infer/test_offsets.py \
	  tests/pipeline/test_kill.py tests/corpus/test_restart.py tests/infer/test_bulk_annotation.py

# Each benchmark also measures peer libraries and writes results/*.json.
bench: $(DEV)/ready
	$(DEV)/bin/pip install --quiet --constraint constraints.txt --group bench
	$(DEV)/bin/python benchmarks/read_speed.py
	$(DEV)/bin/python benchmarks/jats_recall.py
	$(DEV)/bin/python benchmarks/install_size.py
	$(DEV)/bin/python benchmarks/sentences.py
	$(DEV)/bin/python benchmarks/vocab_report.py
	$(DEV)/bin/python benchmarks/vocab_learning.py
	$(DEV)/bin/python benchmarks/corpus_build.py
	$(DEV)/bin/python benchmarks/corpus_speed.py
	$(DEV)/bin/python benchmarks/onnx_speed.py --threads 1
	$(DEV)/bin/python benchmarks/onnx_speed.py
	$(DEV)/bin/python benchmarks/model_speed.py inference
	$(DEV)/bin/python benchmarks/bulk_memory.py

# Trains the default model from the encoder in models/: unlabeled text, the teacher, the student, and the student again;
# five minutes on one H200, many hours without a GPU. Completed steps are not repeated.
default-model: $(DEV)/ready
	$(DEV)/bin/lexome build recipes/corpus/encoder.toml
	$(DEV)/bin/lexome shard recipes/shards/abstracts.toml
	for name in default-teacher default-student default; do \
	  $(DEV)/bin/lexome finetune recipes/finetune/$$name.toml --set data.root=$(DATA) || exit; done
	rm -rf build/default_model
	$(DEV)/bin/lexome export runs/default/runs/seed1/model build/default_model --name lexome-default \
	  --precision int8 --data $(DATA) $(addprefix --held-out ,$(HELD_OUT))
	cp src/lexome/default_model/README.md build/default_model/
	rm -rf src/lexome/default_model && mv build/default_model src/lexome/default_model
	$(DEV)/bin/python benchmarks/annotator_rules.py --fit --test
	$(DEV)/bin/python benchmarks/default_scores.py
	$(DEV)/bin/python benchmarks/default_training.py default-teacher=runs/default-teacher/runs/seed0/run.json \
	  default-student=runs/default-student/runs/seed0/run.json default=runs/default/runs/seed1/run.json

# Trains an encoder like the one in models/, in twelve minutes on one GPU: converts gte-small from its published ONNX file,
# expected with its config.json and tokenizer.json in checkpoints/gte-small-onnx; builds the corpus, an adapted vocabulary and
# the shards; runs continued pre-training; and converts the model to the format of models/. Completed steps are not repeated.
encoder: $(DEV)/ready
	test -d checkpoints/gte-small || $(DEV)/bin/lexome convert-model checkpoints/gte-small-onnx checkpoints/gte-small
	$(DEV)/bin/lexome build recipes/corpus/encoder.toml
	$(DEV)/bin/lexome learn-vocab recipes/vocab/adapted.toml
	$(DEV)/bin/lexome shard recipes/shards/encoder.toml
	$(DEV)/bin/lexome pretrain recipes/pretrain/encoder.toml
	test -d checkpoints/encoder || $(DEV)/bin/lexome convert-model runs/encoder/model checkpoints/encoder --outputs 1 --dtype bfloat16

# The card of the model in models/, with the calibration table of the new one in build/.
card = { sed '/^\#\# Calibration/,$$d' models/$(1)/README.md; \
  sed -n '/^\#\# Calibration/,$$p' build/$(1)/README.md | sed "/^The checkpoint's own card follows/,\$$d"; } \
  > build/$(1).md && mv build/$(1).md build/$(1)/README.md

# Trains the relation model in models/ from the encoder there: all pairs in one pass, then one pass per subject. The model has
# the mean of the weights of the best and of the last evaluation. Minutes on one GPU, hours without.
relations: $(DEV)/ready
	for name in relations relations-subject; do \
	  $(DEV)/bin/lexome finetune recipes/finetune/$$name.toml --set data.root=$(DATA) || exit; done
	$(DEV)/bin/lexome finetune recipes/finetune/relations-subject.toml --set data.root=$(DATA) --set data.dev=none \
	  --set out=runs/relations-last
	rm -rf build/relations build/relations-mean
	$(DEV)/bin/lexome convert-model runs/relations-subject/runs/seed0/model build/relations-mean \
	  --average runs/relations-last/runs/seed0/model
	$(DEV)/bin/lexome export build/relations-mean build/relations --name lexome-relations --data $(DATA) \
	  --precision int8 --agreement 0.96 --difference 0.005 --relax-thresholds \
	  $(addprefix --held-out ,DrugProt BC5CDR-CID BioRED-RE)
	$(call card,relations)
	rm -rf models/relations && mv build/relations models/relations
	$(DEV)/bin/python benchmarks/relations.py --data $(DATA)

# Trains the reader in models/ from the encoder there: general questions, then biomedical ones, and the best of three seeds.
reader: $(DEV)/ready
	for name in reader-squad reader; do \
	  $(DEV)/bin/lexome finetune recipes/finetune/$$name.toml --set data.root=$(DATA) || exit; done
	rm -rf build/reader
	$(DEV)/bin/lexome export runs/reader/runs/*/model build/reader --name lexome-reader --data $(DATA) \
	  --precision int8 --agreement 0.97 --difference 0.02 --relax-thresholds $(addprefix --held-out ,BioASQ-7b BioASQ-list)
	$(call card,reader)
	rm -rf models/reader && mv build/reader models/reader
	$(DEV)/bin/python benchmarks/reader.py --reader models/reader --data $(DATA)

# Regenerates the tables in README and docs from results/*.json.
tables: $(DEV)/ready
	$(DEV)/bin/python benchmarks/tables.py

$(LIGHT)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lexome requires Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/pip install --quiet --upgrade pip
	$(LIGHT)/bin/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install --quiet --upgrade pip
	$(DEV)/bin/pip install --quiet --constraint constraints.txt --editable '.[corpus,train,serve,cluster,spacy,office,search]' --group dev
	@touch $@

clean:
	rm -rf $(LIGHT) $(DEV) build site
