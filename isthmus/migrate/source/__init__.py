"""Sources of a project, for analysis and conversion: files, notebooks, names of CUDA, findings."""
