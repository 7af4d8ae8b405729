"""Patterns of operator names, for commands and environment variables."""

import fnmatch


def matches(name: str, *patterns: str) -> bool:
    """Whether an overload matches one of the patterns, with or without namespace and overload name.

    Args:
        name: such as ``aten::add.Tensor``.
        patterns: such as ``aten::mm``, ``*softmax*`` or ``add.Tensor``.
    """
    packet = name.partition(".")[0]
    texts = (name, packet, name.partition("::")[2], packet.partition("::")[2])
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in texts)
