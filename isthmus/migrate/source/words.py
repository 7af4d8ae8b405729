"""Contexts in which a string such as ``"cuda"`` is a word, key or name, not a device."""

import re

# Functions whose string arguments are names or text.
FUNCTIONS = frozenset(
    "getattr hasattr setattr delattr attrgetter methodcaller print len isinstance Literal".split()
)
# Methods with such arguments.
METHODS = frozenset(
    "get pop setdefault add_argument join startswith endswith replace split find count strip import_module "
    "debug info warning error critical exception search match sub group index append_path "
    "attrgetter methodcaller".split()
)
# Parameters with such arguments.
KEYWORDS = frozenset("name dest help metavar title label key description prog prefix msg".split())
# Variables whose strings are Python names.
IDENTIFIERS = frozenset("__all__ __slots__ __match_args__".split())

# Names of integers, of indices of devices (None where none was chosen), of lists of indices, and of devices.
RANK = re.compile(r"(^|_)rank$")
INDEX = re.compile(r"(^|_)(gpu|rank|(gpu|device|cuda)_?(id|idx|index))$")
INDICES = re.compile(r"(^|_)(gpus|(gpu|device|cuda)_?(ids|idxs|indices))$")
DEVICE = re.compile(r"(\w+\.)*\w*(device|DEVICE)")
# Functions that return integers.
INTEGERS = re.compile(r"(^|_)rank$|^(int|len|current_device|current_device_index|device_count)$")
# Other functions that may be called twice.
PURE = frozenset("str format".split())
