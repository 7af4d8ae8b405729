"""Contexts in which a string such as ``"cuda"`` is a word, key or name, not a device."""

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
