"""Sources of a project, for analyse and convert: files, notebooks, CUDA names, findings."""
