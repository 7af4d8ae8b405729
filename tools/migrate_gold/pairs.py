"""Examples of pytorch/examples that a person moved from CUDA to torch.accelerator, each with a reader's verdict.

The verdicts were given after reading both patches of every file line by line, the person's and that of
`isthmus migrate convert`. Read a file again when its converted source changes: the page names it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

REPOSITORY = "pytorch/examples"


class Verdict(enum.Enum):
    """Comparison of the converted file with the person's."""

    EQUAL = "equal"
    BETTER = "better"
    WORSE = "worse"
    LISTED = "listed"


class Pair(NamedTuple):
    """A file before and after a person's patch.

    Attributes:
        file: path in the repository before the patch.
        before: commit with the file before.
        after: commit with the file after, its corrections in later commits included.
        digest: start of the SHA-256 of the converted source that the verdict is about.
        verdict: how the converted file compares with the person's.
        reason: why, in one line.
        moved: path after the patch, if it is another one.
    """

    file: str
    before: str
    after: str
    digest: str
    verdict: Verdict
    reason: str
    moved: str = ""


_SWITCHES = "same devices; convert keeps --no-cuda and --no-mps, the person's file has --no-accel"
_WARNING = (
    "same devices; convert keeps --cuda, and the warning without it on any accelerator; "
    "the person's file has --accel and no warning"
)
_MESH = "same devices: the device mesh, the model and the input get the accelerator's type"

PAIRS = (
    Pair(
        "fast_neural_style/neural_style/neural_style.py",
        "00ef8a78e47ddbaf12d06e2cb1ae88ff1eba1bb4",
        "65afde6aaba2160e920b052adc4eacd8379075db",
        "438299ca96e7",
        Verdict.LISTED,
        "`eval --cuda 1` ran on the CPU before: the next line sets the device again, to XPU or the CPU; "
        "the person removed that line, convert reports it",
    ),
    Pair(
        "mnist/main.py",
        "6967ff567601f7b3f4827b80db4125e5c6c2c95e",
        "65722fe3ce14447420cf922fdd713bfe900b410f",
        "b4fb67c9750d",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "mnist_forward_forward/main.py",
        "6967ff567601f7b3f4827b80db4125e5c6c2c95e",
        "65722fe3ce14447420cf922fdd713bfe900b410f",
        "7a2cc5af79d0",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "mnist_rnn/main.py",
        "6967ff567601f7b3f4827b80db4125e5c6c2c95e",
        "65722fe3ce14447420cf922fdd713bfe900b410f",
        "b8a22dfc7128",
        Verdict.EQUAL,
        "same devices; convert keeps --cuda and --mps, the person's file has --accel",
    ),
    Pair(
        "gat/main.py",
        "65722fe3ce14447420cf922fdd713bfe900b410f",
        "2c435c78685f1306665f3eb15158b9f54a01bad3",
        "a194c89c65df",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "siamese_network/main.py",
        "b7aebb5ad2ea2a874c426eb4b31d63e7da818e9d",
        "fcce71c1f0ae34bef104aeea8e0e008ea58058a8",
        "f04dad5cdc71",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "vae/main.py",
        "12dc18e872419aba06daa1c0f7e7b05df43644c7",
        "fcce71c1f0ae34bef104aeea8e0e008ea58058a8",
        "b490cc1dda46",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "dcgan/main.py",
        "7028a2ecc97a3068621ee47b4c3c90855a283320",
        "cc8e404cbcbf3a3c326789260deed89ee04b3408",
        "b3e0b1e21bf0",
        Verdict.EQUAL,
        "same devices; `data_parallel` for --ngpu over 1, which only CUDA has, is reported by convert, "
        "and is for CUDA and XPU in the person's file",
    ),
    Pair(
        "imagenet/main.py",
        "3ddcc89e483e97d154bfeb4229c9556fe8f50bd7",
        "42068585f7da9a2f8656f793d21c30ee6806c6b9",
        "58f2b660e375",
        Verdict.BETTER,
        'the person\'s file has `device.type == "cuda"` around DistributedDataParallel and the number of devices, so '
        "that other accelerators train in one process only; on CUDA, --gpu now runs DataParallel on all GPUs",
    ),
    Pair(
        "super_resolution/main.py",
        "2944a9dcc549cfc4832b7d6f3e37e70748b876ec",
        "6f616144dffdc9cdee82d4690c9885070ea4e2e3",
        "5b7d942a155d",
        Verdict.BETTER,
        "the person's file trains on the CPU without a message if --accel finds no accelerator; "
        "convert keeps the error",
    ),
    Pair(
        "super_resolution/super_resolve.py",
        "2944a9dcc549cfc4832b7d6f3e37e70748b876ec",
        "6f616144dffdc9cdee82d4690c9885070ea4e2e3",
        "857dfbfefcf0",
        Verdict.EQUAL,
        "same devices; convert keeps --cuda, the person's file has --accel",
    ),
    Pair(
        "distributed/tensor_parallelism/sequence_parallel_example.py",
        "d0b7e3709407074ac64bb34c5af33fe226abb47c",
        "997c123c0ea3411fc20f90e19e4d2e9f20121afb",
        "4111a1ee749c",
        Verdict.EQUAL,
        _MESH,
    ),
    Pair(
        "distributed/tensor_parallelism/tensor_parallel_example.py",
        "d0b7e3709407074ac64bb34c5af33fe226abb47c",
        "997c123c0ea3411fc20f90e19e4d2e9f20121afb",
        "36220d2f9943",
        Verdict.EQUAL,
        _MESH,
    ),
    Pair(
        "distributed/tensor_parallelism/log_utils.py",
        "6bfe65140482835d88fb70d5994b71deae65d8c7",
        "997c123c0ea3411fc20f90e19e4d2e9f20121afb",
        "2216be58a829",
        Verdict.EQUAL,
        "same calls; the person also renamed the variable has_cuda",
    ),
    Pair(
        "distributed/tensor_parallelism/fsdp_tp_example.py",
        "3fc785388273a81905ddd0e28359a4c39263ece1",
        "997c123c0ea3411fc20f90e19e4d2e9f20121afb",
        "be8da596da99",
        Verdict.EQUAL,
        _MESH,
    ),
    Pair(
        "gcn/main.py",
        "c04a5a10ba7848dd800aa65e78ddb32b73e480f4",
        "d47f0f34f18c8a16ed3d9bf264305b8f988a7c93",
        "3ac803e8273d",
        Verdict.EQUAL,
        _SWITCHES,
    ),
    Pair(
        "distributed/ddp/example.py",
        "d47f0f34f18c8a16ed3d9bf264305b8f988a7c93",
        "f84bcb398d9e06b67e3d36b56b5522bba0cf6210",
        "d51114d6fd64",
        Verdict.BETTER,
        "the person's file takes the global RANK as the index of the device, which fails on a second machine; "
        "convert keeps the local rank",
    ),
    Pair(
        "distributed/minGPT-ddp/mingpt/main.py",
        "f84bcb398d9e06b67e3d36b56b5522bba0cf6210",
        "698a89e5fc9747cb06a6df3abac48dcdd5fff4c8",
        "f5237c42d1fe",
        Verdict.EQUAL,
        "same backend and device; the person's file also refuses to run on fewer than two devices",
    ),
    Pair(
        "distributed/minGPT-ddp/mingpt/trainer.py",
        "f84bcb398d9e06b67e3d36b56b5522bba0cf6210",
        "698a89e5fc9747cb06a6df3abac48dcdd5fff4c8",
        "90249050a800",
        Verdict.EQUAL,
        "same device types for autocast and GradScaler; neither has a test for the CPU, where both fail at "
        "`model.to(self.local_rank)`",
    ),
    Pair(
        "distributed/rpc/ddp_rpc/main.py",
        "99f5c4e2243ed3b2ace2507f79fd3a2b367564d9",
        "e9a4e7510c89613a2fe75312fba1fb8c14b3b376",
        "c6c70323794f",
        Verdict.EQUAL,
        "other accelerators get their backend; on CUDA convert keeps Gloo, the person's file takes NCCL; "
        "the person's file also refuses to run on fewer than two devices",
    ),
    Pair(
        "distributed/rpc/parameter_server/rpc_parameter_server.py",
        "99f5c4e2243ed3b2ace2507f79fd3a2b367564d9",
        "e9a4e7510c89613a2fe75312fba1fb8c14b3b376",
        "69b3e6ec8ea0",
        Verdict.BETTER,
        "the person's file asks for `num_gpus > 0` instead of `> 1` before it uses the second device, "
        "and fails with --num_gpus=1 on one device",
    ),
    Pair(
        "distributed/rpc/rnn/rnn.py",
        "99f5c4e2243ed3b2ace2507f79fd3a2b367564d9",
        "e9a4e7510c89613a2fe75312fba1fb8c14b3b376",
        "f03952c8c70f",
        Verdict.EQUAL,
        "same devices under the same tests",
    ),
    Pair(
        "distributed/FSDP2/train.py",
        "e9a4e7510c89613a2fe75312fba1fb8c14b3b376",
        "5a4ca9269f689acfc8fcf2118bcb27470e28dd2f",
        "a89c47f0500d",
        Verdict.BETTER,
        "the person's file calls `torch.accelerator.device_index(rank)`, a context manager, without `with`: "
        "the current device is never set",
        "distributed/FSDP2/example.py",
    ),
    Pair(
        "word_language_model/generate.py",
        "5a4ca9269f689acfc8fcf2118bcb27470e28dd2f",
        "28e586404fabefb37a73570774d398ed90521d2a",
        "a27fe907d8a5",
        Verdict.EQUAL,
        _WARNING,
    ),
    Pair(
        "word_language_model/main.py",
        "5a4ca9269f689acfc8fcf2118bcb27470e28dd2f",
        "28e586404fabefb37a73570774d398ed90521d2a",
        "bd406455de6b",
        Verdict.EQUAL,
        _WARNING,
    ),
)
