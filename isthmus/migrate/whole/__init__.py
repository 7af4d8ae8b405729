"""Changes that concern a whole source: apex.amp, and training in one process that becomes data parallel."""
