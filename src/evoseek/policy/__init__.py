"""The model side: text to token ids and back, the formats, the samplers, the embedded tiny policy."""
