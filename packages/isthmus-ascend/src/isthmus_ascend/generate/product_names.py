"""Print a header with the products that the NPUs can be."""

from isthmus_ascend.products import SERIES, WITHOUT_BFLOAT16, short_names


def header() -> str:
    """Return the text of the header."""
    rows = "".join(
        f'    {{"{name}", "{short}", {number}}},\n'
        for number, names in enumerate(SERIES.values())
        for name, short in short_names(names)
    )
    flags = ", ".join(str(series not in WITHOUT_BFLOAT16).lower() for series in SERIES)
    return f"""#pragma once

#include <string_view>

namespace isthmus::ascend {{

struct Product {{
  std::string_view name, short_name;
  int series;
}};

constexpr Product kProducts[] = {{
{rows}}};
constexpr bool kSeriesWithBfloat16[] = {{{flags}}};

}}  // namespace isthmus::ascend
"""


if __name__ == "__main__":
    print(header(), end="")
