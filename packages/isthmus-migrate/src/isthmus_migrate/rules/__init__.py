"""The rules: each finds one idiom of CUDA, decides how it ends, and edits it."""
