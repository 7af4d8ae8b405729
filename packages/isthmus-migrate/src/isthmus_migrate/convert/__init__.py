"""``isthmus migrate convert``: convert CUDA source to device-neutral source, by rules on its concrete syntax tree."""
