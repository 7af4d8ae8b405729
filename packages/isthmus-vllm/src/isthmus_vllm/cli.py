"""The command ``isthmus vllm``."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from isthmus_common.finding import State, line


def main(arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="isthmus vllm", description="Serve models with vLLM on the chip.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "Say whether vLLM uses the chip, and what to do if it does not."
    commands.add_parser("check", help=text, description=text)
    parser.parse_args(arguments)
    from isthmus_vllm.check import examine

    if find_spec("vllm") is None:
        print("isthmus vllm check: vLLM is not installed; docs/guides/serving.md says how")
        return 1
    findings = list(examine())
    print("\n".join(map(line, findings)))
    return int(any(each.state is not State.OK for each in findings))
