"""Rank tables, which tell Ascend's collective library (HCCL) the devices of a job: made, merged, checked."""
