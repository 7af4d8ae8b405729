"""Prepare and build a release: ``make release``.

``python -m tools.release start 0.2.0`` writes VERSION and makes the section "Unreleased" of CHANGELOG.md that of the
version. ``python -m tools.release build --torch 2.13.0 python3.11`` checks that the tree is clean and that the
version is new and has its section. Then it runs `make` with the target of ``--check``, builds the wheels
(tools/wheel.py), and writes dist/SHA256SUMS and dist/NOTES.md. It prints the steps that publish the release, and does
none of them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools import wheel
from tools.repository import ROOT

UNRELEASED = "## Unreleased\n"
SUMS = "SHA256SUMS"


class NotReady(Exception):
    """A condition of a release that does not hold; the text says what to do."""


def git(root: Path, *words: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.rstrip()


def sections(changelog: str) -> dict[str, str]:
    """Return the text under each heading "## VERSION" or "## VERSION, DATE"; "Unreleased" is one of the versions."""
    parts = re.split(r"^## ([^\s,]+).*\n", changelog, flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def start(root: Path, version: str) -> None:
    """Write the version, and make the section "Unreleased" of the changelog its section."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise NotReady(f"{version} is no version; give one like 0.2.0 or 0.2.0rc1")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    known = sections(text)
    if version in known:
        raise NotReady(f"CHANGELOG.md has a section for {version}; choose a later version")
    if not known.get("Unreleased"):
        raise NotReady("CHANGELOG.md has no changes under 'Unreleased'; describe them there first")
    heading = f"## {version}, {datetime.now(UTC):%Y-%m-%d}\n"
    changelog.write_text(text.replace(UNRELEASED, heading, 1))
    (root / "VERSION").write_text(f"{version}\n")


def check(root: Path) -> str:
    """Return the version to release; raise NotReady if it can't be."""
    version = (root / "VERSION").read_text().strip()
    known = sections((root / "CHANGELOG.md").read_text())
    if changed := git(root, "status", "--porcelain"):
        raise NotReady(f"the tree is not clean; commit or remove:\n{changed}")
    if known.get("Unreleased"):
        raise NotReady(
            "CHANGELOG.md has changes under 'Unreleased'; run make release VERSION=X.Y.Z, then commit"
        )
    if not known.get(version):
        raise NotReady(f"CHANGELOG.md has no section for {version}, the version in VERSION")
    if git(root, "tag", "--list", f"v{version}"):
        raise NotReady(f"the tag v{version} exists; run make release VERSION=X.Y.Z for a later version")
    return version


def write_sums(wheels: list[Path], folder: Path) -> Path:
    """Write the SHA-256 of each wheel, as `sha256sum --check` reads it; return the file."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(wheels)]
    (folder / SUMS).write_text("".join(lines))
    return folder / SUMS


def build(target: str, pythons: list[str], torches: list[str]) -> None:
    """Check, test and build the version that the tree has; print how to publish it."""
    version = check(ROOT)
    subprocess.run(["make", target], cwd=ROOT, check=True)
    wheels = wheel.main(pythons, torches)
    write_sums(wheels, wheel.DIST)
    (wheel.DIST / "NOTES.md").write_text(sections((ROOT / "CHANGELOG.md").read_text())[version] + "\n")
    files = " ".join(f"dist/{path.name}" for path in sorted(wheels))
    check(ROOT)  # a test may have changed a file
    print(
        f"make: {version} is ready in dist/. Not done yet:\n"
        f"  git tag --annotate v{version} --message 'Isthmus {version}'\n"
        f"  git push origin HEAD v{version}\n"
        f"  gh release create v{version} --notes-file dist/NOTES.md dist/{SUMS} {files}"
    )


def main(words: list[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start", help="write VERSION and the section of CHANGELOG.md").add_argument("version")
    building = commands.add_parser("build", help="check, test and build into dist/")
    building.add_argument("--check", default="test-all", metavar="TARGET", help="of make; must pass")
    wheel.add_torches(building)
    building.add_argument("pythons", nargs="+", help="build wheels for each")
    options = parser.parse_args(words)
    try:
        if options.command == "start":
            start(ROOT, options.version)
            print(
                f"make: VERSION and CHANGELOG.md say {options.version}; review and commit, then make release"
            )
        else:
            build(options.check, options.pythons, options.torches)
    except NotReady as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
