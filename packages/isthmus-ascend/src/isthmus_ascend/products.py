"""The products that the NPUs can be, in the series that share what they accept."""

# Names as torch_npu knows them (NpuVariables.cpp); the first of a series stands for the name of the series.
SERIES = {
    "910": ("Ascend910A", "Ascend910PremiumA", "Ascend910ProA", "Ascend910B", "Ascend910ProB"),
    "310P": ("Ascend310P3", "Ascend310P1", "Ascend310P2", "Ascend310P4", "Ascend310P5", "Ascend310P7"),
    "910B": ("Ascend910B2", "Ascend910B1", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1"),
    "910_93": (
        *("Ascend910_9391", "Ascend910_9392", "Ascend910_9381", "Ascend910_9382"),
        *("Ascend910_9372", "Ascend910_9362", "Ascend910_9363"),
    ),
    "950": ("Ascend950",),
}
WITHOUT_BFLOAT16 = ("910", "310P")


def short_names(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the products of a series, each with a shorter name: that of the series for the first.

    910B is the series, not the older Ascend910B, which has no shorter name.
    """
    series = next(series for series, products in SERIES.items() if products == names)
    shorter = [series, *(name.removeprefix("Ascend") for name in names[1:])]
    return [
        (name, name if short in SERIES and short != series else short)
        for name, short in zip(names, shorter, strict=True)
    ]


def full_name(product: str) -> str:
    """Return the name of a product that is given with or without `Ascend`, or as a series: 910B2, 910_93, 310P.

    Raises:
        ValueError: unknown product.
    """
    known = [pair for names in SERIES.values() for pair in short_names(names)]
    for name, short in known:
        if product in (name, short):
            return name
    for name, _ in known:
        if name == f"Ascend{product}":
            return name
    raise ValueError(f"unknown product; expected one of {', '.join(name for name, _ in known)}")


def check_product(product: str) -> None:
    """Raise ValueError for an unknown product."""
    full_name(product)
