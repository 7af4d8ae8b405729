"""Put replacements for missing packages on the module search path.

``isthmus run --provide flash_attn,apex`` adds a folder for each, so that imports, ``find_spec`` and
``importlib.metadata`` find it. Versions end in ``+isthmus``.
"""

import re
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).parent
# Available packages, and their top-level modules.
PROVIDED = {
    "flash_attn": ("flash_attn", "flash_attn_interface"),
    "apex": ("apex", "amp_C", "fused_weight_gradient_mlp_cuda"),
    "transformer_engine": ("transformer_engine",),
    "xformers": ("xformers",),
    "grouped_gemm": ("grouped_gemm",),
    "causal_conv1d": ("causal_conv1d",),
    "mamba_ssm": ("mamba_ssm",),
}


def folders(names: str) -> list[str]:
    """Folders to put on the module search path.

    Args:
        names: comma-separated names of :data:`PROVIDED`.

    Raises:
        ValueError: unknown name, or the real package is installed.
    """
    found = []
    for name in filter(None, (each.strip() for each in names.split(","))):
        if name not in PROVIDED:
            raise ValueError(f"cannot provide {name!r}; {_instead(name)}")
        folder = str(_HERE / name)
        for module in PROVIDED[name]:
            spec = PathFinder.find_spec(module)
            # A folder of this name without __init__.py has no origin; the provided module takes precedence.
            if spec is not None and spec.origin and not spec.origin.startswith(folder):
                raise ValueError(
                    f"cannot provide {name}: the real {module} is installed ({spec.origin}); remove {name} from "
                    "--provide, or uninstall it"
                )
        found.append(folder)
    return found


def _instead(name: str) -> str:
    if name == "bitsandbytes":
        return "it needs no replacement: `pip install bitsandbytes`, and remove it from --provide"
    alike = name.replace("-", "_")
    return f"did you mean {alike}?" if alike in PROVIDED else f"expected one of {', '.join(PROVIDED)}"


def hint(error: BaseException) -> str:
    """Return a line that names the replacement, for an error caused by a missing package that has one; "" for others.

    Args:
        error: the exception that ends the program. Packages are found by the ``name`` of import errors in its chain,
            and by the text of an import error that a library raises for a package that it looked for.
    """
    for name in _missing_modules(error):
        for package, modules in PROVIDED.items():
            if name in modules and PathFinder.find_spec(name) is None:
                return f"{name} is not installed; `isthmus run --provide {package}` supplies a replacement"
    return ""


def _missing_modules(error: BaseException) -> Iterator[str]:
    """Top-level modules that the import errors of a chain name.

    An error that another one interrupted has been handled, unless both are import errors.
    """
    cause: BaseException | None = error
    while cause is not None:
        is_import = isinstance(cause, ImportError)
        if isinstance(cause, ModuleNotFoundError):
            yield (cause.name or "").partition(".")[0]
        elif is_import:
            yield from re.findall(r"\w+", str(cause))
        cause = cause.__cause__ or (cause.__context__ if is_import else None)
