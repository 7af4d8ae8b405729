"""Reads the exported functions of the runtime's libraries, with the types and names of their parameters, from C++."""

import re
from dataclasses import dataclass

from tools.repository import ASCEND

SOURCES = ASCEND / "csrc"
FOLDERS = {
    "libascendcl.so": "acl",
    "libhccl.so": "hccl",
    "libacl_op_compiler.so": "op_compiler",
    "libopapi.so": "opapi",
}
EXPORTED = re.compile(r'^(?:ISTHMUS_ASCEND_EXPORT|EXPORT|extern "C" __attribute__\(\(visibility\("default"\)\)\)) '
                      r"([\w ]+?[\s*]+)(\w+)\(([^{;]*)\)(?: noexcept)? \{", re.MULTILINE)  # fmt: skip


@dataclass(frozen=True)
class Prototype:
    """One function of a library: its name, what it returns, and its parameters as (C type, name or "")."""

    library: str
    name: str
    result: str
    parameters: tuple[tuple[str, str], ...]


def parameter(text: str) -> tuple[str, str]:
    """Return type and name of a parameter as written."""
    text = " ".join(re.sub(r"/\*.*?\*/", "", text).split())
    if "(*" in text:
        return "function", text
    match = re.fullmatch(r"(.*[\s*])(\w+)((?:\[\])?)", text)
    if match is None or not match[1].strip(" *") or match[1].strip() in ("const", "unsigned"):
        return text, ""
    return match[1].strip() + match[3].replace("[]", "*"), match[2]


def split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def prototypes() -> list[Prototype]:
    """Return the functions of all libraries but the rows of functions.table, by name."""
    found = []
    for library, folder in FOLDERS.items():
        for path in sorted((SOURCES / folder).glob("*.cpp")):
            for result, name, parameters in EXPORTED.findall(path.read_text()):
                given = tuple(parameter(part) for part in split(parameters))
                found.append(Prototype(library, name, result.strip(), given))
    return sorted(found, key=lambda prototype: prototype.name)
