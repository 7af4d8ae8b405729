"""Checks of all hosts and cards of a cluster before a job."""
