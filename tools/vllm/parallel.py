"""Generate greedily with an engine of several ranks, each a process; print the tokens as JSON.

    python -m tools.vllm.parallel MODEL '{"tensor_parallel_size": 2}'

With ``kill`` as the third argument, kill the last rank instead, and print the seconds until the engine reports it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from tools.vllm.models import PROMPTS

TOKENS = 32


async def _generate(engine: Any, index: int, tokens: int) -> list[int]:
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    found: list[int] = []
    async for output in engine.generate(PROMPTS[index], parameters, request_id=str(index)):
        found = list(output.outputs[0].token_ids)
    return found


async def _kill_last_rank(engine: Any) -> float:
    """Return the seconds from the death of a worker to the error of a request."""
    import psutil
    from vllm.v1.engine.exceptions import EngineDeadError

    workers = [
        each for each in psutil.Process().children(recursive=True) if "Worker" in " ".join(each.cmdline())
    ]
    request = asyncio.create_task(_generate(engine, 0, 400))
    await asyncio.sleep(0.2)
    start = time.monotonic()
    workers[-1].kill()
    try:
        await request
    except EngineDeadError:
        return time.monotonic() - start
    raise SystemExit("the request outlived its worker")


async def main(model: str, options: dict[str, Any], kill: bool) -> None:
    """Start the engine, use it and stop it."""
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    defaults = {
        "dtype": "float32", "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 512,
        "kv_cache_memory_bytes": 32 << 20, "enforce_eager": True,
    }  # fmt: skip
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **defaults | options))
    try:
        if kill:
            print(json.dumps(await _kill_last_rank(engine)))
        else:
            print(
                json.dumps(
                    await asyncio.gather(*(_generate(engine, each, TOKENS) for each in range(len(PROMPTS))))
                )
            )
    finally:
        engine.shutdown(timeout=60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:] == ["kill"]))
