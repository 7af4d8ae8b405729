"""Generate text with vLLM on the chip. For a server: ``vllm serve MODEL``.

python examples/serve.py MODEL "The quick brown fox"
"""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate text with vLLM.")
    parser.add_argument("model", help="folder of a model, or its name on a hub")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--tokens", type=int, default=32, help="number of new tokens")
    parser.add_argument("--memory", type=int, default=64, help="memory of the cache, in MiB")
    options = parser.parse_args()
    from vllm import LLM, SamplingParams

    engine = LLM(
        options.model, max_model_len=512, max_num_seqs=8, kv_cache_memory_bytes=options.memory << 20,
        disable_log_stats=True,
    )  # fmt: skip
    for found in engine.generate(options.prompts, SamplingParams(temperature=0, max_tokens=options.tokens)):
        print(f"{found.prompt!r} -> {found.outputs[0].text!r}")


if __name__ == "__main__":
    main()
