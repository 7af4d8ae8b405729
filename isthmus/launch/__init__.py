"""Running training jobs: what a job prints, and how fast it is."""
