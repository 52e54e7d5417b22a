"""Trackers that come with evoseek: the metrics of a run in the formats of other programs."""
