"""The folder that stands on the module search path when apex is provided."""
