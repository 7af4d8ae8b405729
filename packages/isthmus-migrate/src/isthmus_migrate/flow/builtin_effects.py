"""Effects of calls of Python's own functions and methods on the values that pass through them."""

from __future__ import annotations

import ast
from collections.abc import Callable

from isthmus_migrate.flow import pytests
from isthmus_migrate.flow.expressions import Expressions
from isthmus_migrate.flow.facts import ANY, KEYS, TEXT, Call
from isthmus_migrate.source.calls import keyword
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import place_of

Handler = Callable[[Expressions, ast.Call, str], str]
MethodHandler = Callable[[Expressions, ast.Call, str, str], str]
ARGUMENTS = "argparse"  # the class of what an argument parser returns


# ---- functions ----------------------------------------------------------------------------------------------
def _return_nothing(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """Take words, or return none."""
    _mark_words(gatherer, call)
    return ""


def _mark_words(gatherer: Expressions, call: ast.Call) -> None:
    for each in (*call.args, *(given.value for given in call.keywords)):
        gatherer.flow(gatherer.slot(each), TEXT)


def _return_first(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """Return the first argument, or something with the same elements."""
    return gatherer.slot(call.args[0]) if call.args else ""


def _return_default(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """Return the default of a look-up outside the program: ``os.environ.get("DEVICE", "cuda")``."""
    default = keyword(call, "default") or (call.args[1] if len(call.args) > 1 else None)
    gatherer.flow(gatherer.slot(default), result)
    return result


def _element(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """Return an element of the first argument, or one of several arguments."""
    if len(call.args) > 1:
        for each in call.args:
            gatherer.flow(gatherer.slot(each), result)
    if call.args:
        gatherer.flow(gatherer.load(gatherer.slot(call.args[0]), ANY, call), result)
    return result


def _dict(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``dict(other, device="cuda")``."""
    for each in call.args:
        gatherer.flow(gatherer.slot(each), result)
    for given in call.keywords:
        if given.arg:
            gatherer.store(gatherer.slot(given.value), result, given.arg)
        else:
            gatherer.flow(gatherer.slot(given.value), result)
    return result


def _counter(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``collections.Counter(values)``: the values are its keys."""
    for each in call.args:
        gatherer.store(gatherer.load(gatherer.slot(each), ANY, call), result, KEYS)
    return result


def _getattr(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``getattr(args, "device", "cuda")``."""
    name = text(call.args[1]) if len(call.args) > 1 else ""
    if len(call.args) > 2:
        gatherer.flow(gatherer.slot(call.args[2]), result)
    if name:
        receiver = gatherer.slot(call.args[0]) or "?"
        gatherer.facts.attributes[(receiver, name)] = None
        gatherer.flow(f"{receiver}.{name}", result)
    return result


def _bind_partial(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``functools.partial(f, device="cuda")`` passes its arguments to the function."""
    if call.args:
        name = gatherer.names.qualified(call.args[0]) or ""
        arguments = tuple(gatherer.arguments(call, skip=1))
        gatherer.facts.calls.append(Call(name or "__call__", "", arguments, "", gatherer.place(call)))
    return ""


def _default(gatherer: Expressions, call: ast.Call, result: str) -> str:
    """``field(default="cuda")``, ``typer.Option("cuda")``."""
    factory = keyword(call, "default_factory")
    if isinstance(factory, ast.Lambda):
        gatherer.flow(gatherer.slot(factory.body), result)
    gatherer.flow(gatherer.slot(keyword(call, "default")), result)
    if call.args:
        gatherer.flow(gatherer.slot(call.args[0]), result)
    return result


_WORDS = (
    "print len isinstance issubclass hasattr setattr delattr type repr hash id callable input open int float bool "
    "range Exception ValueError RuntimeError TypeError NotImplementedError AssertionError KeyError warnings.warn "
    "collections.namedtuple typing.NamedTuple typing.Literal operator.attrgetter operator.methodcaller "
    "importlib.import_module __import__ exec eval compile os.path.join os.path.exists os.makedirs os.path.basename "
    "pathlib.Path re.compile re.match re.search re.sub re.findall re.fullmatch json.dumps json.dump json.loads "
    "logging.info logging.warning logging.debug logging.error logging.getLogger subprocess.run subprocess.Popen "
    "subprocess.check_output shutil.which shlex.split "
    "torch.cuda.nvtx.range torch.profiler.record_function"
)
KNOWN: dict[str, Handler] = {
    **dict.fromkeys(_WORDS.split(), _return_nothing),
    **dict.fromkeys(
        "str list tuple sorted set frozenset reversed iter copy.copy copy.deepcopy typing.cast".split(),
        _return_first,
    ),
    "typing.cast": lambda gatherer, call, result: gatherer.slot(call.args[-1]) if call.args else "",
    **dict.fromkeys("os.environ.get os.getenv os.environ.setdefault".split(), _return_default),
    **dict.fromkeys("next min max random.choice".split(), _element),
    "dict": _dict,
    "collections.OrderedDict": _dict,
    "types.SimpleNamespace": _dict,
    "collections.Counter": _counter,
    "getattr": _getattr,
    "pytest.param": pytests.parameter,
    pytests.PARAMETRIZE: lambda gatherer, call, result: "",
    "functools.partial": _bind_partial,
    **dict.fromkeys(
        "dataclasses.field typer.Option typer.Argument pydantic.Field attrs.field attr.ib".split(), _default
    ),
}


# ---- methods ------------------------------------------------------------------------------------------------
def _return_receiver(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """Return the object, its elements, or a string made from it."""
    return receiver


def _parts(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """Return parts of the string."""
    gatherer.store(receiver, result, ANY)
    return result


def _get(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``d.get("device", "cuda")``, ``d.pop(...)``, ``d.setdefault(...)``."""
    if not call.args:
        return ""
    key = call.args[0].value if isinstance(call.args[0], ast.Constant) else ANY
    if key == ANY:
        gatherer.store(gatherer.slot(call.args[0]), receiver, KEYS)
    default = keyword(call, "default") or (call.args[1] if len(call.args) > 1 else None)
    gatherer.flow(gatherer.slot(default), result)
    gatherer.flow(gatherer.load(receiver, str(key), call), result)
    if getattr(call.func, "attr", "") == "setdefault":
        gatherer.store(gatherer.slot(default), receiver, str(key))
    return result


def _items(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``d.items()``: pairs of key and value."""
    pair = f"{result}#"
    gatherer.store(gatherer.load(receiver, ANY, call), pair, "1")
    gatherer.store(gatherer.load(receiver, KEYS, call), pair, "0")
    gatherer.store(pair, result, ANY)
    return result


def _keys(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    gatherer.store(gatherer.load(receiver, KEYS, call), result, ANY)
    return result


def _update(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``d.update(other, device="cuda")``."""
    _dict(gatherer, call, receiver)
    return result


def _append(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``passes.append(fuse)`` passes a function on."""
    arguments = tuple(gatherer.arguments(call))
    gatherer.facts.calls.append(Call("list", "", arguments, "", gatherer.place(call)))
    for each in call.args:
        gatherer.store(gatherer.slot(each), receiver, ANY)
    return result


def _join(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``":".join(("cuda", index))`` begins with its first element."""
    for each in call.args:
        gatherer.flow(gatherer.load(gatherer.slot(each), "0", call), result)
    return result


def _format(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``"cuda:{}".format(rank)`` is one string."""
    owner = getattr(call.func, "value", None)
    if isinstance(owner, ast.Constant) and text(owner).startswith("cuda:"):
        gatherer.facts.strings.pop(place_of(owner), None)
        gatherer.facts.strings[place_of(call)] = result
        return result
    return receiver


def _argument(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``parser.add_argument("--device", default="cuda")``: an attribute of what the parser returns."""
    names = [*filter(None, map(text, call.args))]
    name = next((each for each in names if each.startswith("--")), names[0] if names else "")
    name = text(keyword(call, "dest")) or name
    slot = _option(gatherer, name.lstrip("-").replace("-", "_"))
    gatherer.flow(gatherer.slot(keyword(call, "default")), slot)
    gatherer.flow(gatherer.slot(keyword(call, "const")), slot)
    for option in ("choices", "nargs"):
        value = keyword(call, option)
        if value is not None:
            gatherer.facts.values[place_of(value)] = slot
    return result


def _defaults(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``parser.set_defaults(device="cuda")``."""
    for each in call.keywords:
        gatherer.flow(gatherer.slot(each.value), _option(gatherer, each.arg or ""))
    return result


def _option(gatherer: Expressions, name: str) -> str:
    """Return the slot of an attribute of what a parser returns."""
    gatherer.facts.attributes[(f"{ARGUMENTS}@", name)] = None
    return f"{ARGUMENTS}.{name}"


def _return_parsed(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """Return the parsed arguments; words of a command line may be devices."""
    for each in call.args:
        words = gatherer.load(gatherer.slot(each), ANY, call)
        gatherer.facts.calls.append(Call("parse_args", "?", ((0, words),), "", gatherer.place(call)))
    gatherer.flow(f"{ARGUMENTS}@", result)
    if getattr(call.func, "attr", "") == "parse_known_args":
        gatherer.store(f"{ARGUMENTS}@", result, "0")
    return result


def _word(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """Take words only."""
    _mark_words(gatherer, call)
    return result


def _compare_arguments(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``self.assertEqual(x.device.type, "cuda")`` compares its arguments."""
    for each in call.args[:2]:
        gatherer.flow(gatherer.slot(each), result)
    return result


def _add(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """``parser.add("--device", default="cuda")`` of configargparse, or the ``add`` of a set."""
    is_option = bool(call.args) and text(call.args[0]).startswith("-")
    return (_argument if is_option else _append)(gatherer, call, receiver, result)


def _compare_ends(gatherer: Expressions, call: ast.Call, receiver: str, result: str) -> str:
    """Compare the object with the arguments."""
    gatherer.flow(receiver, result)
    return result


_TEXT = "lower upper strip lstrip rstrip casefold replace removeprefix removesuffix encode decode title capitalize"
_SAYING = (
    "debug info warning error critical exception log add_scalar add_text write writelines search match fullmatch sub "
    "find findall count index import_module group add_row set_postfix set_description"
)
KNOWN_METHODS: dict[str, MethodHandler] = {
    **dict.fromkeys(["values", "copy", *_TEXT.split()], _return_receiver),
    **dict.fromkeys("split rsplit partition rpartition splitlines".split(), _parts),
    **dict.fromkeys("get pop setdefault".split(), _get),
    "items": _items,
    "keys": _keys,
    "update": _update,
    **dict.fromkeys("append extend insert appendleft".split(), _append),
    "add": _add,
    **dict.fromkeys("assertEqual assertNotEqual assertEquals".split(), _compare_arguments),
    "format": _format,
    "join": _join,
    "add_argument": _argument,
    "set_defaults": _defaults,
    **dict.fromkeys("parse_args parse_known_args".split(), _return_parsed),
    **dict.fromkeys("startswith endswith __eq__".split(), _compare_ends),
    **dict.fromkeys(_SAYING.split(), _word),
}
