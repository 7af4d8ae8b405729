"""Where a string such as ``"cuda"`` is a word, a key or a name and no device; analysis and conversion read it."""

from __future__ import annotations

# Functions whose arguments are names and words.
FUNCTIONS = frozenset("getattr hasattr setattr delattr print len isinstance Literal".split())
# Methods, likewise.
METHODS = frozenset(
    "get pop setdefault add_argument join startswith endswith replace split find count strip import_module "
    "debug info warning error critical exception search match sub group index append_path".split()
)
# Parameters, likewise.
KEYWORDS = frozenset("name dest help metavar title label key description prog prefix msg".split())
# Names whose strings are names in Python.
IDENTIFIERS = frozenset("__all__ __slots__ __match_args__".split())
