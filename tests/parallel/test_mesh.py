"""DeviceMesh on chip."""

from __future__ import annotations

from tests.helpers.parallel.ranks import checks_of

ranks, test_ranks = checks_of("mesh", 4)
