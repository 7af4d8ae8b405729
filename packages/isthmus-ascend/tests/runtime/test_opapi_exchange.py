"""Products exchanged with other ranks, in a process of two of them; see exchange_jobs.py."""

import pytest

from tests.helpers import children
from tests.runtime.test_runtime import ENVIRONMENT

JOBS = [
    "products_reduced",
    "quantised_products_reduced",
    "products_of_gathered_rows",
    "products_exchanged_by_columns",
    "products_of_experts",
    "barriers_and_refusals",
]


@pytest.mark.parametrize("job", JOBS)
def test_exchanged_products(job: str) -> None:
    children.output(f"from tests.runtime import exchange_jobs; exchange_jobs.{job}()", **ENVIRONMENT)
