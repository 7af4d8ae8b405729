"""Launch files of a job on every host of an inventory."""
