"""``isthmus migrate analyse``: the CUDA dependencies of a project, found without running it."""
