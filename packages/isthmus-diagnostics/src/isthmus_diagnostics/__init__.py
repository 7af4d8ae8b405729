"""Right and fast: compare, debug, watch, profile and plan jobs."""
