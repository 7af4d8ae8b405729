"""Units of sizes and times."""

import pytest

from isthmus_common.units import format_size, format_step_time, parse_size, unit_for


@pytest.mark.parametrize(
    ("text", "decimal", "size"),
    [
        ("12", False, 12),
        ("12B", False, 12),
        ("1.5GiB", False, 3 << 29),
        ("1gib", False, None),
        ("1gib", True, 1 << 30),
        ("5GB", False, None),
        ("5gb", True, 5 * 10**9),
        ("-1", False, None),
        ("GiB", False, None),
    ],
)
def test_sizes_are_parsed(text, decimal, size):
    assert parse_size(text, decimal=decimal) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (-2048, "-2.0 KiB"), (3 << 29, "1.5 GiB"), (1 << 52, "4096.0 TiB")],
)
def test_sizes_are_formatted(size, text):
    assert format_size(size) == text


def test_a_size_is_formatted_in_the_units_asked_for():
    assert [format_size(size, ("MiB", "GiB")) for size in (0, 1 << 19, 1 << 41)] == [
        "0.0 MiB",
        "0.5 MiB",
        "2048.0 GiB",
    ]
    assert unit_for(5 << 10, ("MiB", "GiB")) == ("MiB", 1 << 20)


def test_step_times_are_formatted():
    assert [format_step_time(seconds) for seconds in (12.34, 9.9, 0.0841)] == ["12.3 s", "9900 ms", "84 ms"]
    assert [format_step_time(seconds, exact=True) for seconds in (9.9, 0.00841)] == ["9900 ms", "8.41 ms"]
