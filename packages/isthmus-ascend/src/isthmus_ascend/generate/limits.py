"""Print C++ with the rows of csrc/opapi/products.table: what each product accepts."""

from collections.abc import Iterator
from dataclasses import dataclass

from isthmus_ascend.generate.exports import c_string
from isthmus_ascend.generate.table import TABLE, Row, rows
from isthmus_ascend.products import SERIES

LIMITS = TABLE.with_name("products.table")
# Numbers and names of an aclDataType, as torch_npu's messages print them.
DATA_TYPES = {
    "float32": (0, "DT_FLOAT"), "float16": (1, "DT_FLOAT16"), "int8": (2, "DT_INT8"), "int32": (3, "DT_INT32"),
    "uint8": (4, "DT_UINT8"), "int16": (6, "DT_INT16"), "uint16": (7, "DT_UINT16"), "uint32": (8, "DT_UINT32"),
    "int64": (9, "DT_INT64"), "uint64": (10, "DT_UINT64"), "float64": (11, "DT_DOUBLE"), "bool": (12, "DT_BOOL"),
    "complex64": (16, "DT_COMPLEX64"), "complex128": (17, "DT_COMPLEX128"), "bfloat16": (27, "DT_BFLOAT16"),
    "complex32": (33, "DT_COMPLEX32"), "hifloat8": (34, "DT_HIFLOAT8"), "float8_e5m2": (35, "DT_FLOAT8_E5M2"),
    "float8_e4m3fn": (36, "DT_FLOAT8_E4M3FN"), "float8_e8m0": (37, "DT_FLOAT8_E8M0"), "int4": (29, "DT_INT4"),
}  # fmt: skip
KINDS = {
    "products": "kProducts",
    "dtypes": "kDtypes",
    "rank": "kRank",
    "filled": "kFilled",
    "range": "kRange",
}


@dataclass(frozen=True)
class Limit:
    """A row: function without `aclnn` and its parameter, `*` for all; series; kind of check, its values; source."""

    function: str
    parameter: str
    series: tuple[str, ...]
    kind: str
    values: tuple[str, ...]
    source: str


def read_limits(text: str) -> Iterator[Limit]:
    """Yield the rows of a table. Raises ValueError for a line that is none."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4 or not fields[3]:
            raise ValueError(f"line {number} is not `Function parameter | series | check | source`: {line}")
        function, parameter = fields[0].split()
        series, (kind, *values) = tuple(fields[1].split()), fields[2].split()
        if series == ("*",):
            series = tuple(SERIES)
        if kind not in KINDS or not set(series) <= SERIES.keys():
            raise ValueError(f"line {number} names an unknown check or series: {line}")
        yield Limit(function, parameter, series, kind, tuple(values), fields[3])


def dtypes_of(values: tuple[str, ...]) -> list[str]:
    """Return the dtypes of a row, in order; `-name` leaves one out of all.

    Raises:
        KeyError: unknown dtype.
    """
    left_out = [value.removeprefix("-") for value in values if value.startswith("-")]
    names = [name for name in DATA_TYPES if name not in left_out] if left_out else list(values)
    assert all(DATA_TYPES[name] for name in [*left_out, *names])
    return names


def constant(limit: Limit, functions: dict[str, tuple[int, Row]]) -> str:
    """Return the C++ of a row. Raises KeyError or ValueError for a function or parameter that does not exist."""
    row = parameter = -1
    if limit.function != "*":
        row, found = functions[limit.function]
        if limit.parameter != "*":
            names = [name for _, name in found.parameters]
            if limit.parameter not in names:
                raise ValueError(
                    f"{limit.function} has no {limit.parameter}; expected one of {', '.join(names)}"
                )
            parameter = names.index(limit.parameter)
    series = sum(1 << list(SERIES).index(each) for each in limit.series)
    mask, least, most, accepted = 0, "0", "0", " ".join(limit.values)
    if limit.kind == "dtypes":
        dtypes = dtypes_of(limit.values)
        mask = sum(1 << DATA_TYPES[name][0] for name in dtypes)
        accepted = "".join(f"{DATA_TYPES[name][1]}," for name in dtypes)
    elif limit.kind in ("rank", "range"):
        least, most = limit.values
    return (
        f"    {{{row}, {parameter}, {series}, Limit::{KINDS[limit.kind]}, {mask}u, {least}, {most}, "
        f"{c_string(accepted)}, {c_string(limit.source)}}},\n"
    )


def source(limits: list[Limit], table: list[Row]) -> str:
    """Return the text of the C++ source."""
    functions = {row.name: (i, row) for i, row in enumerate(table)}
    limits.sort(key=lambda limit: functions[limit.function][0] if limit.function != "*" else -1)
    constants = "".join(constant(limit, functions) for limit in limits)
    types = "".join(f'    {{{number}, "{name}"}},\n' for number, name in DATA_TYPES.values())
    return (
        '#include "opapi/products.h"\n\nnamespace isthmus::ascend {\n\n'
        f"const DataType kDataTypes[] = {{\n{types}}};\n"
        "const size_t kDataTypeCount = sizeof kDataTypes / sizeof *kDataTypes;\n"
        f"const Limit kLimits[] = {{\n{constants}}};\n"
        "const size_t kLimitCount = sizeof kLimits / sizeof *kLimits;\n\n}  // namespace isthmus::ascend\n"
    )


if __name__ == "__main__":
    print(source(list(read_limits(LIMITS.read_text())), rows()), end="")
