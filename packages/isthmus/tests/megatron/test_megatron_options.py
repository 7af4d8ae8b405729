"""AscendSpeed's options: supported ones take effect, others warn or end the job with one line."""

import pytest

from tests.helpers.children import run

PARSE = """
import argparse, warnings; warnings.simplefilter("ignore")
import isthmus.megatron, torch
from isthmus.megatron import options, recompute
parser = argparse.ArgumentParser(prog="train.py", allow_abbrev=False)
parser.add_argument("--use-flash-attn", action="store_true", help="the parser's own")
parser.add_argument("--cp-comm-type", nargs="+", default=["p2p"])
args = options.add_options(parser).parse_args({flags!r}.split())
"""


def parse(flags, then="", **environment):
    return run(PARSE.format(flags=flags) + then, **environment)


def test_options_with_an_effect():
    done = parse(
        "--optimize-recomp-communication-level 2 --context-parallel-algo kvallgather_cp_algo --npu-deterministic "
        "--use-flash-attn",
        "print(recompute.level(), args.optimize_recomp_communication_level, args.cp_comm_type,\n"
        "    args.context_parallel_algo, torch.are_deterministic_algorithms_enabled(), args.use_flash_attn)",
    )
    assert done.stdout == "2 2 ['all_gather'] kvallgather_cp_algo True True\n" and not done.stderr


def test_options_without_effect_warn_once():
    flags = "--use-fused-rmsnorm --shape-order SBH --reuse-fp32-param --sparse-mode 2"
    done = parse(
        flags, "print(args.use_fused_rmsnorm, args.shape_order, args.reuse_fp32_param, args.use_ascend_mc2)"
    )
    assert done.stdout == "True SBH True False\n"
    assert done.stderr.splitlines() == [
        "isthmus: --use-fused-rmsnorm has no effect: it is always enabled",
        "isthmus: --shape-order SBH has no effect: it tunes another chip",
        "isthmus: --reuse-fp32-param has no effect: it saves no memory here",
        "isthmus: --sparse-mode 2 has no effect: it tunes another chip",
    ]
    assert not parse(flags, RANK="1").stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--context-parallel-algo hybrid_cp_algo",
            "--context-parallel-algo hybrid_cp_algo is not supported: "
            "use megatron_cp_algo, kvallgather_cp_algo, ulysses_cp_algo",
        ),
        ("--optimizer-selection fused_ema_adamw", "--optimizer-selection fused_ema_adamw is not supported: "),
        ("--noop-layers 0,5", "--noop-layers 0,5 is not supported: use --pipeline-model-parallel-layout"),
        ("--sparse-mode 4", "--sparse-mode 4 is not supported: use --window-size for a sliding window"),
        ("--use-unpad", "--use-unpad is not supported: pack sequences in the data loader"),
    ],
)
def test_options_that_are_not_available_end_the_job(flags, said):
    done = parse(flags)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"isthmus: {said}")
