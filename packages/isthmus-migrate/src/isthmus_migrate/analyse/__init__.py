"""``isthmus migrate analyse``: find the CUDA dependencies of a project without running it."""
