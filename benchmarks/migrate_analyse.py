"""Lines per second of `isthmus migrate analyse`, on one core and as a command, over transformers.

Goal: at least 5 000 lines per second and core, and the installed transformers in under two minutes. The limit
is Python's own parser on the same files.
"""

import argparse
import ast
import importlib.util
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from harness import interleave, per_call, print_table, ratio, save

from isthmus_migrate.analyse.engine import analyse

UNFAIR = (
    "Files read from disk by one peer and from the page cache by the other, or other machine load: hence every "
    "peer reads the same files after a warm-up round, the rate of one core uses CPU time, and only the whole "
    "command uses wall time, including the start of its processes."
)


def sample(root: Path, every: int, folder: Path) -> Path:
    """Copy every n-th Python file of a tree, so that a round takes seconds."""
    for path in sorted(root.rglob("*.py"))[::every]:
        copy = folder / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


def parse_all(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in root.rglob("*.py"):
            ast.parse(path.read_bytes())


def whole(root: Path) -> tuple[dict[str, float], str]:
    """Run the command on the whole tree; return wall and CPU seconds, peak memory, and its last line."""
    words = ("-m", "isthmus", "migrate", "analyse", "--no-probe", "--fail-on", "never", str(root))
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    figures = {
        "whole_s": seconds,
        "whole_processor_s": processors,
        "largest_process_GiB": used.ru_maxrss / (1 << 20),
    }
    return figures, result.stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--package", default="transformers", help="installed package to analyse (transformers)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (default 3)")
    parser.add_argument("--every", type=int, default=20, help="a round analyses every n-th file (default 20)")
    options = parser.parse_args()
    found = importlib.util.find_spec(options.package)
    if found is None or found.origin is None:
        sys.exit(f"{options.package} is not installed; name another package with --package")
    root = Path(found.origin).parent
    with tempfile.TemporaryDirectory() as folder:
        tree = sample(root, options.every, Path(folder))
        lines = analyse(tree, processes=1, probe=False).lines
        peers = {
            "analyse": per_call(lambda: analyse(tree, processes=1, probe=False), clock=time.process_time),
            "parse": per_call(lambda: parse_all(tree), clock=time.process_time),
        }
        times = interleave(peers, rounds=options.rounds, warm_up=1)
    figures, summary = whole(root)
    rate = lines / times["analyse"].median
    row = {
        "package": options.package,
        "lines": lines,
        "lines_per_core_s": round(rate),
        "parser_alone": round(lines / times["parse"].median),
        "ratio": ratio(times["analyse"], times["parse"]),
        **figures,
    }
    print_table([row])
    print(f"whole: {summary}")
    print(f"{rate:.0f} lines/s/core (goal at least 5000), whole {figures['whole_s']:.1f} s (goal under 120)")
    settings = {"rounds": options.rounds, "every": options.every, "whole": summary}
    save("migrate_analyse", [row], unfair=UNFAIR, settings=settings)


if __name__ == "__main__":
    main()
