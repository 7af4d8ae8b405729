"""Parallel plans: every layout of a model on a cluster, by predicted memory and step time."""
