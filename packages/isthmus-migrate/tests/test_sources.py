"""isthmus_migrate.source.files: files that are read, skipped, or findings."""

import os
from pathlib import Path

import pytest

from isthmus_migrate.source import files as sources
from isthmus_migrate.source.files import Kind, Source, walk
from isthmus_migrate.source.findings import Finding, Severity


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def found(root: Path) -> dict[str, Source | Finding]:
    return {each.name if isinstance(each, Source) else each.path: each for each in walk(root)}


def codes(root: Path) -> dict[str, str]:
    return {each.path: each.code for each in walk(root) if isinstance(each, Finding)}


def test_every_kind_is_found_in_the_order_of_names(tmp_path: Path):
    kinds = {
        "Dockerfile.gpu": Kind.SHELL,
        "a.py": Kind.PYTHON,
        "b/c.ipynb": Kind.NOTEBOOK,
        "b/run.sh": Kind.SHELL,
        "docker-compose.yml": Kind.SHELL,
        "environment.yml": Kind.REQUIREMENTS,
        "k.cu": Kind.NATIVE,
        "k.h": Kind.NATIVE,
        "pyproject.toml": Kind.REQUIREMENTS,
        "requirements-dev.txt": Kind.REQUIREMENTS,
        "setup.py": Kind.PYTHON,
    }
    write(tmp_path, {**dict.fromkeys(kinds, b"x"), "data.bin": b"\0", "notes.txt": b"x"})
    assert [(name, each.kind) for name, each in found(tmp_path).items()] == list(kinds.items())


def test_one_file(tmp_path: Path):
    write(tmp_path, {"train": b"import torch\n", "other.py": b""})
    (source,) = walk(tmp_path / "train")
    assert isinstance(source, Source)
    assert (source.name, source.kind, source.text) == ("train", Kind.PYTHON, "import torch\n")


def test_a_missing_path_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="absent"):
        list(walk(tmp_path / "absent"))


def test_version_control_environments_and_caches_are_left_out(tmp_path: Path):
    kept = write(tmp_path / ".git", {"a.py": b"", ".github/scripts/e.py": b""})
    write(kept, {".git/b.py": b"", "env/pyvenv.cfg": b"", "env/c.py": b"", "__pycache__/d.py": b""})
    write(kept, {".some_cache/CACHEDIR.TAG": b"", ".some_cache/f.py": b""})
    assert list(found(kept)) == [".github/scripts/e.py", "a.py"]  # a given folder is read, whatever its name


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"a = 1\r\n", "utf-8", "a = 1\r\n"),
        (b"\xef\xbb\xbfa = '\xc3\xa9'\n", "utf-8-sig", "a = 'é'\n"),
        (b"# -*- coding: latin-1 -*-\na = '\xe9'\n", "iso-8859-1", "# -*- coding: latin-1 -*-\na = 'é'\n"),
        ("# coding: euc-jp\na = '語'\n".encode("euc-jp"), "euc-jp", "# coding: euc-jp\na = '語'\n"),
    ],
)
def test_python_encodings(tmp_path: Path, data: bytes, encoding: str, text: str):
    (source,) = walk(write(tmp_path, {"a.py": data}) / "a.py")
    assert isinstance(source, Source)
    assert (source.encoding, source.text, source.text.encode(source.encoding)) == (encoding, text, data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"])
def test_other_texts_round_trip(tmp_path: Path, encoding: str):
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    data = f"{mark}apex # é\r\n".encode(encoding)
    (source,) = walk(write(tmp_path, {"requirements.txt": data}))
    assert isinstance(source, Source)
    assert "apex # é" in source.text
    assert source.text.encode(source.encoding) == data


@pytest.mark.parametrize(
    "data",
    [
        b"a = '\xe9'\n",
        b"# coding: no-such\n",
        b"# coding: hex\n",
        b"\xef\xbb\xbf# coding: latin-1\n",
        b"a = 1\n\0\n",
        "import torch".encode("utf-16"),
    ],
)
def test_python_that_cannot_be_decoded(tmp_path: Path, data: bytes):
    (finding,) = walk(write(tmp_path, {"a.py": data}))
    assert isinstance(finding, Finding)
    assert (finding.code, finding.path, finding.line, finding.severity) == (
        "IM002",
        "a.py",
        0,
        Severity.MANUAL,
    )


def test_too_large(tmp_path: Path):
    with (tmp_path / "data.py").open("wb") as stream:
        stream.truncate(sources.LARGEST + 1)
    assert codes(tmp_path) == {"data.py": "IM003"}


def test_symbolic_links(tmp_path: Path):
    tree = write(tmp_path / "tree", {"a.py": b"", "b/c.py": b""})
    write(tmp_path / "outside", {"d.py": b""})
    (tree / "b" / "up").symlink_to(tree)
    (tree / "circle.py").symlink_to("circle.py")
    (tree / "gone.py").symlink_to("no-such-file")
    (tree / "inside.py").symlink_to("a.py")
    (tree / "out").symlink_to(tmp_path / "outside")
    (tree / "prefix").symlink_to(write(tmp_path / "tree-of-others", {"e.py": b""}))
    assert codes(tree) == dict.fromkeys(("b/up", "circle.py", "gone.py", "out", "prefix"), "IM004")
    assert [name for name, each in found(tree).items() if isinstance(each, Source)] == ["a.py", "b/c.py"]


def test_files_that_are_not_regular(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.py")
    assert codes(tmp_path) == {"pipe.py": "IM005"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_files(tmp_path: Path):
    write(tmp_path, {"a.py": b"", "b/c.py": b""})
    (tmp_path / "a.py").chmod(0)
    (tmp_path / "b").chmod(0)
    try:
        assert codes(tmp_path) == {"a.py": "IM005", "b": "IM005"}
    finally:
        (tmp_path / "b").chmod(0o700)


def test_a_file_that_vanishes(tmp_path: Path):
    (file,) = sources.files(write(tmp_path, {"a.py": b""}))
    (tmp_path / "a.py").unlink()
    assert isinstance(file, sources.File)
    finding = sources.read(file)
    assert isinstance(finding, Finding)
    assert finding.code == "IM005"
    assert "No such file" in finding.message


def test_deep_folders_and_odd_names(tmp_path: Path):
    deep = tmp_path.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "a.py").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff.py")).write_bytes(b"")
    assert list(found(tmp_path)) == ["d/" * 200 + "a.py", "z\\xff.py"]
