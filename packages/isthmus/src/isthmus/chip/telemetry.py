"""Device telemetry of the driver: utilization, temperature, power, clock.

Quantities that the driver does not measure raise NotImplementedError.
"""

import time

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index

_SAMPLING_SECONDS = 0.1


def telemetry(device: DeviceLike = None) -> dict[str, float | None]:
    """All measurements of the device; None for those that the driver does not support.

    Returns:
        ``temperature_c`` (degrees Celsius), ``power_w`` (watts), ``clock_mhz``, ``compute_utilization`` and
        ``memory_utilization`` (0 to 1, over the driver's last sampling period), ``link_errors``, ``ecc_corrected``
        and ``ecc_uncorrected`` (counts since the driver was loaded), ``health`` (0 good, 1 degraded, 2 failed).
    """
    return _C.telemetry(_index(device))


def utilization(device: DeviceLike = None) -> int:
    """Compute utilization in percent of the last sampling period. Raises NotImplementedError if not measured."""
    return round(100 * _sample("compute_utilization", device))


def memory_usage(device: DeviceLike = None) -> int:
    """Memory utilization in percent of the last sampling period; on the host chip, memory in use.

    Raises NotImplementedError if not measured.
    """
    return round(100 * _sample("memory_utilization", device))


def temperature(device: DeviceLike = None) -> int:
    """Temperature in degrees Celsius. Raises NotImplementedError if not measured."""
    return round(_measure("temperature_c", device))


def power_draw(device: DeviceLike = None) -> int:
    """Power draw in milliwatts. Raises NotImplementedError if not measured."""
    return round(1000 * _measure("power_w", device))


def clock_rate(device: DeviceLike = None) -> int:
    """Clock of the compute units in MHz. Raises NotImplementedError if not measured."""
    return round(_measure("clock_mhz", device))


def _sample(name: str, device: DeviceLike) -> float:
    """A utilization from 0 to 1; some drivers compare two samples, between which their counters must advance."""
    value: float | None = _C.telemetry(_index(device))[name]
    if value is not None:
        return value
    time.sleep(_SAMPLING_SECONDS)
    return _measure(name, device)


def _measure(name: str, device: DeviceLike) -> float:
    index = _index(device)
    value = _C.telemetry(index)[name]
    if value is None:
        raise NotImplementedError(
            f"chip:{index}: the driver {_C.driver()['name']} does not measure {name}; "
            "see torch.chip.telemetry() for what it measures"
        )
    return value
