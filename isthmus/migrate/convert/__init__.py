"""``isthmus migrate convert``: CUDA source to device-neutral source, by rules over its concrete syntax tree."""
