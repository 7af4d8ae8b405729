"""Settings of the graph backend: options of ``torch.compile``, over those of the environment."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus import options


class Settings(NamedTuple):
    """The settings of the compilation of a graph.

    Attributes:
        fuse: replace patterns of operators, and runs of pointwise operators, by fused ones. Results then differ from
            eager ones by rounding; without it they are bit-equal.
        capture: run the kernels of a graph without Python and the dispatcher, from its second call on.
    """

    fuse: bool
    capture: bool

    @classmethod
    def from_options(cls, given: Mapping[str, Any] | None) -> Settings:
        """The settings for ``torch.compile(..., backend="isthmus", options=given)``.

        Raises:
            ValueError: unknown option, or one of another type.
        """
        default = cls(options.switch("compile_fuse"), options.switch("compile_capture"))
        for name, value in (given or {}).items():
            if name not in cls._fields:
                near = difflib.get_close_matches(name, cls._fields, n=1) or sorted(cls._fields)
                raise ValueError(
                    f"torch.compile: unknown option {name!r} of backend isthmus; expected {near[0]}"
                )
            if not isinstance(value, bool):
                raise ValueError(f"torch.compile: option {name} is {value!r}; expected True or False")
        return default._replace(**(given or {}))
