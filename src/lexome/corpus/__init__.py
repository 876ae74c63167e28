"""From literature to token shards: records, vocabularies, shards, masking. numpy, never torch."""
