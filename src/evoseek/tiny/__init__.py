"""The embedded policy: model, tokenizer, demonstrations, building, skills."""
