"""The model: text to token ids and back, formats, samplers, and the embedded tiny policy."""
