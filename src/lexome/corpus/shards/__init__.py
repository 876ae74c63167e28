"""Token shards: written from records, mapped from disk."""
