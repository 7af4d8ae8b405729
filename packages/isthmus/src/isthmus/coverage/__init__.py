"""``isthmus ops --model``: the operators that a model calls, and those of them that the chip has no kernel for."""
