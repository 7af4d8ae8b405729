"""The function that ``import torch`` calls, by the entry point of ``torch.backends``.

It is here, and not in isthmus, because PyTorch fails if the function cannot be imported, as where a folder named
``isthmus`` beside a script, such as a clone, hides the package.
"""

import sys

from isthmus_common.text import first_line


def load() -> None:
    """Register the chip with PyTorch. Whatever goes wrong is one line on standard error, never an exception.

    Raises:
        InvalidOption: an option of the environment is invalid; the process ends.
    """
    try:
        from isthmus import autoload
    except Exception as error:
        print(
            f"isthmus: the chip is not available: {type(error).__name__}: {first_line(error)}",
            file=sys.stderr,
        )
        return
    autoload.load()
