"""The model: text to token ids and back, formats and samplers."""
