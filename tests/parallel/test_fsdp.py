"""FSDP2 and FSDP1 on chip."""

from __future__ import annotations

from tests.helpers.parallel.ranks import checks_of

ranks, test_ranks = checks_of("fsdp", 2)
