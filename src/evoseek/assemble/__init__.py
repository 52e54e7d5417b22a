"""From a Config to the objects that do the work: the only place that knows which setting goes where."""
