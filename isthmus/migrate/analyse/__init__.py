"""``isthmus migrate analyse``: what in a project is bound to CUDA, without running it."""
