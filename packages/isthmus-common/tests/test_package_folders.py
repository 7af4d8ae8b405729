"""Which files are the user's."""

import ast
import sys
from pathlib import Path

import pytest

from isthmus_common import package_folders


def test_which_files_are_the_users(tmp_path: Path) -> None:
    assert package_folders.is_users(str(tmp_path / "train.py"))
    for path in (ast.__file__, pytest.__file__, package_folders.__file__, sys.executable):
        assert not package_folders.is_users(path), path
    assert not package_folders.is_users(str(tmp_path / "lib" / "site-packages" / "thing.py"))
