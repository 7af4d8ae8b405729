"""The source of a project as analysis and conversion see it: files, notebooks, names of CUDA, findings."""
