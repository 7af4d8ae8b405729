"""Reading and writing of rank tables."""

import json
from pathlib import Path
from typing import Any

from isthmus_cluster.errors import ClusterError
from isthmus_common.files import make_folder, write_file


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ClusterError: there is none, or a key occurs twice in it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_reject_duplicates)
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}; give the path of a rank table") from None
    except UnicodeDecodeError:
        raise ClusterError(f"{path}: not UTF-8; write the rank table as a JSON text file") from None
    except json.JSONDecodeError as error:
        raise ClusterError(
            f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}; correct this line"
        ) from None
    except ValueError as error:
        raise ClusterError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ClusterError(f"{path}: not a rank table: expected a JSON object, {{...}}")
    return found


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f'key "{key}" occurs twice in one object; remove one')
        found[key] = value
    return found


def text(table: dict[str, Any]) -> str:
    """Return a rank table as JSON."""
    return json.dumps(table, indent=4)


def write(table: dict[str, Any], path: Path) -> None:
    """Write a rank table, with mode 0640."""
    make_folder(path.absolute().parent)
    write_file(path, text(table).encode())
