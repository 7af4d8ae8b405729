"""Time that loading the chip adds to `import torch`, in fresh processes. Goal: at most 40 ms.

Peers: with and without the autoload of backends. The limit is the cost of PyTorch's own search for backends if it
finds none.
"""

import argparse

from harness import difference, in_process, interleave, print_table, ratio, save

# CPU time: waiting for a busy processor is not a cost of the autoload.
MEASURE = "import time; start = time.process_time(); import torch; print(time.process_time() - start)"
SEARCH = """
import time
from importlib.metadata import entry_points
start = time.perf_counter()
entry_points(group="torch.backends")
print(time.perf_counter() - start)
"""
UNFAIR = (
    "A cold page cache or missing .pyc files on the first import: hence warm-up rounds and interleaved peers."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    options = parser.parse_args()
    peers = {
        "without": in_process("-c", MEASURE, TORCH_DEVICE_BACKEND_AUTOLOAD="0"),
        "with": in_process("-c", MEASURE, TORCH_DEVICE_BACKEND_AUTOLOAD="1"),
        "search": in_process("-c", SEARCH),
    }
    times = interleave(peers, rounds=options.rounds)
    added = difference(times["with"], times["without"])
    row = {
        "without_ms": times["without"].median * 1e3,
        "with_ms": times["with"].median * 1e3,
        "added_ms": added * 1e3,
        "ratio": ratio(times["with"], times["without"]),
        "limit_ms": times["search"].median * 1e3,
    }
    print_table([row])
    print(f"added: {added * 1e3:.1f} ms (goal at most 40)")
    save("autoload", [row], unfair=UNFAIR, settings={"rounds": options.rounds})


if __name__ == "__main__":
    main()
