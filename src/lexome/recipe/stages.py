"""Every stage that has a recipe, and its schema."""

from importlib import import_module

from lexome.recipe import Recipe

# Where each schema is; imported when asked for, so that a verb loads its own alone.
STAGES = {
    "build": "corpus_stages:BuildRecipe",
    "build-terms": "terms:TermsRecipe",
    "distill": "pretrain:DistillRecipe",
    "finetune": "finetune:FinetuneRecipe",
    "learn-vocab": "corpus_stages:VocabRecipe",
    "pretrain": "pretrain:PretrainRecipe",
    "reproduce": "study:StudyRecipe",
    "shard": "corpus_stages:ShardRecipe",
}


def schema_of(stage: str) -> type[Recipe]:
    """The schema of a stage's recipes."""
    module, _, name = STAGES[stage].partition(":")
    schema: type[Recipe] = getattr(import_module(f"lexome.recipe.{module}"), name)
    return schema
