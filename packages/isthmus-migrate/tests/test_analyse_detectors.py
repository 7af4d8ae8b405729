"""Findings of each detector, one pattern at a time, and patterns without findings."""

from pathlib import Path

import pytest

from isthmus_migrate.analyse import codes, engine
from isthmus_migrate.rules.apex_modules import COUNTERPARTS, ApexModules
from isthmus_migrate.rules.synchronize import Synchronize
from isthmus_migrate.source import third_party
from isthmus_migrate.source.findings import Severity
from tests.helpers.analysis import code_subject_line, findings

HEAD = "import torch, torch.nn as nn\nfrom torch.utils.data import DataLoader\n"
LOOP = "for batch in loader:\n    loss = model(batch)\n    loss.backward()\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # PyTorch's CUDA API
        ("torch.cuda.synchronize()", {"IM112": "torch.cuda.synchronize"}),
        ("torch.cuda.memory.empty_cache()", {"IM113": "torch.cuda.memory.empty_cache"}),
        ("torch.cuda.current_stream().wait_stream(s)", {"IM116": "torch.cuda.current_stream"}),
        ("torch.backends.cudnn.benchmark = True", {}),
        ("torch.cuda.nccl.version()", {"IM191": "torch.cuda.nccl"}),
        ("torch.cuda.no_such_name()", {"IM199": "torch.cuda.no_such_name"}),
        ("getattr(torch.cuda, name)", {"IM199": "torch.cuda"}),
        ("cuda = torch.cuda", {}),
        ("wait = torch.cuda.synchronize", {"IM112": "torch.cuda.synchronize"}),
        ("from torch.cuda.amp import autocast", {}),
        ("from torch import cuda", {}),
        ("print(torch.backends.cudnn.enabled)", {}),
        ('DEVICE = "cuda"; print(DEVICE == "cuda")', {"IM102": '"cuda"', "IM119": '`DEVICE == "cuda"`'}),
        ('Kind = Literal["cpu", "cuda"]', {}),
        ('old = [word for word in argv if not word.startswith("--local_rank")]', {}),
        ('x.type("torch.cuda.LongTensor")', {"IM120": "torch.cuda.LongTensor"}),
        ("torch.backends.cudnn.version()", {}),
        ('getattr(torch, "cuda").synchronize()', {"IM199": "torch.cuda"}),
        ('if hasattr(torch, "cuda"): pass', {}),
        ('if hasattr(x, "cuda"): pass', {"IM101": ".cuda"}),
        ('getattr(x, "cuda")()', {"IM101": ".cuda"}),
        ("list(map(torch.Tensor.cuda, xs))", {"IM101": "torch.Tensor.cuda"}),
        ("torch.Tensor.cuda(x)", {"IM101": "torch.Tensor.cuda"}),
        ("torch.cuda.comm.scatter(x, [0])", {"IM191": "torch.cuda.comm"}),
        ("torch.nn.parallel.comm.scatter(x, [0])", {"IM191": "torch.nn.parallel.comm"}),
        ("if torch.version.cuda: pass", {"IM191": "torch.version.cuda"}),
        ("torch.backends.cuda.sdp_kernel(False)", {}),
        (
            "torch.backends.cuda.can_use_flash_attention(p)",
            {"IM191": "torch.backends.cuda.can_use_flash_attention"},
        ),
        ("torch.load(path)", {"IM806": "torch.load"}),
        ("torch.load(path, map_location=d)", {}),
        ("from torch.cuda import *", {"IM130": "torch.cuda.*"}),
        ("from torch.cuda import comm", {}),
        # devices
        ("model.cuda()", {"IM101": ".cuda()"}),
        ("x.cuda(non_blocking=True)", {"IM101": ".cuda()"}),
        ('torch.device("cuda")', {"IM105": "torch.device"}),
        ('torch.device("cuda", index)', {"IM105": "torch.device"}),
        ('torch.device("cuda" if torch.cuda.is_available() else "cpu")', {"IM104": '"cuda" or "cpu"'}),
        ('x.to("cuda" if torch.cuda.is_available() else "cpu")', {"IM104": '"cuda" or "cpu"'}),
        (
            'd = "cuda" if torch.cuda.is_available() else "cpu"',
            {"IM110": "torch.cuda.is_available", "IM102": '"cuda"'},
        ),
        ('with torch.autocast("cuda"): pass', {"IM118": "torch.autocast"}),
        (
            'DataLoader(d, 1, num_workers=1, pin_memory=True, pin_memory_device="cuda")',
            {"IM123": "pin_memory_device"},
        ),
        ('model.to(device="cuda")', {"IM102": '"cuda"'}),
        ('x.to("cuda:1")', {"IM102": '"cuda:1"'}),
        ('device = "cuda:1"', {"IM102": '"cuda:1"'}),
        ('x = "cuda:1"', {"IM102": '"cuda:1"'}),
        ('x = "cuda:1"; print(x)', {}),
        ('torch.load(f, map_location={"cuda:0": d})', {"IM108": "map_location"}),
        ("torch.load(f, map_location=lambda storage, _: storage.cuda(0))", {"IM108": "map_location"}),
        ('x.to(f"cuda:{rank}")', {"IM103": '"cuda:..."'}),
        ('x.to("cuda:" + str(rank))', {"IM103": '"cuda:..."'}),
        ('x.to("cuda:%d" % rank)', {"IM103": '"cuda:..."'}),
        ('x.to("cuda:{}".format(rank))', {"IM103": '"cuda:..."'}),
        ('y = f"cuda:{rank}"', {"IM103": '"cuda:..."'}),
        ("if x.is_cuda: pass", {"IM119": "`x.is_cuda`"}),
        ('if x.device.type == "cuda": pass', {"IM119": '`x.device.type == "cuda"`'}),
        ('if str(x.device).startswith("cuda"): pass', {"IM119": '`str(x.device).startswith("cuda")`'}),
        ('if x.device.type in ("cuda", "xpu"): pass', {"IM119": '`x.device.type in ("cuda", "xpu")`'}),
        ('def f(device): return device == "cuda"', {"IM119": '`device == "cuda"`'}),
        ('def f(mode): return mode == "cuda"', {"IM119": '`mode == "cuda"`'}),
        ('def f(mode="fast"): return mode == "cuda"', {}),
        ('print("cuda" == "c" + "uda")', {}),
        ('"""cuda"""', {}),
        ('x = cache["cuda"]', {}),
        ('x = {"cuda": 1}', {}),
        ('print("cuda")', {}),
        ('parser.add_argument("--cuda", help="cuda")', {}),
        ('print(f"no cuda: {error}")', {}),
        ('help = "use cuda if it is there"', {}),
        # distribution
        ('torch.distributed.init_process_group("nccl")', {"IM201": '"nccl"'}),
        ('torch.distributed.init_process_group("cuda:nccl,cpu:gloo")', {"IM201": '"cuda:nccl,cpu:gloo"'}),
        (
            'torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
            {"IM201": '"nccl" or "gloo"'},
        ),
        ('print("nccl")', {}),
        ('if backend == "nccl": pass', {"IM202": '"nccl"'}),
        ('if backend in ("gloo", "nccl"): pass', {"IM202": '"nccl"'}),
        ("nn.parallel.DistributedDataParallel(m, device_ids=[r], bucket_cap_mb=9)", {"IM203": "device_ids"}),
        ('subprocess.run([python, "-m", "torch.distributed.launch"])', {"IM220": "torch.distributed.launch"}),
        ("nn.DataParallel(model)", {"IM210": "torch.nn.DataParallel"}),
        ("nn.parallel.parallel_apply(ms, xs)", {"IM210": "torch.nn.parallel.parallel_apply"}),
        ('parser.add_argument("--local_rank", type=int)', {"IM221": "--local_rank"}),
        ('os.environ["NCCL_DEBUG"] = "INFO"', {"IM222": "NCCL_DEBUG"}),
        # the profiler
        ("x = [torch.profiler.ProfilerActivity.CUDA]", {"IM124": "ProfilerActivity.CUDA"}),
        ('averages.table(sort_by="cuda_time_total")', {"IM124": "cuda_time_total"}),
        ("event.cuda_time", {}),
        ("torch.autograd.profiler.profile(use_cuda=True)", {"IM124": "use_cuda"}),
        # the out-of-memory error
        ('if "CUDA out of memory" in str(e): pass', {"IM132": '"CUDA out of memory"'}),
        ('if str(e).startswith("CUDA error: out of memory"): pass', {"IM132": '"CUDA error: out of memory"'}),
        ('any(s in str(e) for s in ["CUDA out of memory."])', {"IM132": '"CUDA out of memory."'}),
        ('print("CUDA out of memory")', {}),
        ('raise RuntimeError("CUDA out of memory")', {}),
        ('if "out of memory" in str(e): pass', {}),
        # commands
        ('import subprocess as s; s.run(["nvidia-smi", "-L"])', {"IM321": "nvidia-smi"}),
        ('import os; os.popen(f"nvidia-smi -i {index}")', {"IM321": "nvidia-smi"}),
        ('import os; run = "nvcc --version"; os.system(run)', {"IM321": "nvcc"}),
        ('import os; os.system("python -m torch.distributed.launch")', {"IM220": "torch.distributed.launch"}),
        ('print("nvidia-smi shows more")', {}),
        # variables
        ('os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"', {"IM129": "CUBLAS_WORKSPACE_CONFIG"}),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0"', {"IM129": "CUDA_VISIBLE_DEVICES"}),
        ('os.putenv("PYTORCH_CUDA_ALLOC_CONF", x)', {"IM129": "PYTORCH_CUDA_ALLOC_CONF"}),
        ('"""NCCL_DEBUG"""', {}),
        # shapes
        ("torch.nonzero(x)", {"IM601": "torch.nonzero"}),
        ("x.unique()", {"IM601": ".unique()"}),
        ("torch.where(x)", {"IM601": "torch.where"}),
        ("torch.where(x, y, z)", {}),
        ("y = x[x > 0]", {"IM602": "[mask]"}),
        ("y = x[~mask]", {"IM602": "[mask]"}),
        ("x[mask] = 0", {}),
        ("y = x[3]", {}),
        ("if x.max().item() > 3: pass", {"IM603": ".item()"}),
        ('tokenizer(text, padding="longest")', {"IM604": "padding"}),
        ('tokenizer(text, padding="max_length")', {}),
        ("nn.utils.rnn.pad_sequence(xs)", {"IM604": "pad_sequence"}),
        # speed
        ("DataLoader(data, pin_memory=True)", {"IM701": "DataLoader"}),
        ("DataLoader(data, num_workers=2)", {"IM702": "DataLoader"}),
        ("DataLoader(data, num_workers=2, pin_memory=True)", {}),
        ("DataLoader(data, **options)", {}),
        ("torch.optim.AdamW(p)", {"IM704": "torch.optim.AdamW"}),
        ("torch.optim.AdamW(p, fused=True)", {}),
        ("nn.parallel.DistributedDataParallel(m)", {"IM705": "torch.nn.parallel.DistributedDataParallel"}),
        ("torch.zeros(3).to(device)", {"IM709": ".to()"}),
        ("torch.zeros(3).to(torch.int)", {}),
        ("torch.zeros(3).to('cpu')", {}),
        ("opt.zero_grad(set_to_none=False)", {"IM710": "zero_grad"}),
        # precision
        ("torch.set_float32_matmul_precision('high')", {"IM801": "torch.set_float32_matmul_precision"}),
        ("x.to(torch.float64)", {"IM802": "torch.float64"}),
        ("x.double()", {"IM802": ".double()"}),
        ("model.half()", {"IM804": ".half()"}),
        ("torch.use_deterministic_algorithms(True)", {"IM805": "torch.use_deterministic_algorithms"}),
    ],
)
def test_one_line(line: str, expected: dict[str, str]):
    assert {
        code: subject for code, subject, number in code_subject_line(f"{HEAD}{line}\n") if number == 3
    } == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (LOOP + "    total += loss.item()\n", {("IM707", 4)}),
        (LOOP + "    if step % 10 == 0: print(loss.item())\n", set()),
        (LOOP + "total += loss.item()\n", set()),
        (LOOP + "    torch.cuda.empty_cache()\n", {("IM113", 4), ("IM708", 4)}),
        (LOOP + "    batch = batch.to(device)\n", {("IM703", 4)}),
        (LOOP + "    batch = batch.to(device, non_blocking=True)\n", set()),
        (LOOP + "    if use_cuda: pass\n    else: batch = batch.to(device)\n", set()),
        (LOOP + "    if not torch.accelerator.is_available(): batch = batch.to(device)\n", set()),
        (LOOP + "    if device.type == 'cpu' and x: batch = batch.to(device)\n", set()),
        (LOOP + "    if device.type == 'cpu' or x: batch = batch.to(device)\n", {("IM703", 4)}),
        (LOOP + "    if args.gpu: batch = batch.to(device)\n", {("IM703", 4)}),
        (LOOP + "    batch = batch if args.gpu else batch.to(device)\n", set()),
        ("model = DDP(m)\n" + LOOP + "    if i % 4 == 3:\n        opt.step()\n", {("IM706", 6)}),
        (
            "model = DDP(m)\n"
            + LOOP
            + "    model.require_backward_grad_sync = i % 4 == 3\n    if i % 4 == 3:\n        opt.step()\n",
            set(),
        ),
        ("with torch.cuda.amp.autocast():\n    loss = f(x)\nloss.backward()\n", {("IM118", 1), ("IM803", 1)}),
        ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    f(x).backward()\n", {("IM118", 1)}),
    ],
)
def test_loops(source: str, expected: set[tuple[str, int]]):
    assert {(code, line - 1) for code, _, line in code_subject_line(f"import torch\n{source}")} == expected


@pytest.mark.parametrize("name", ["box_area", "boxes.box_area", "_new_empty_tensor", "misc._output_size"])
def test_functions_of_torchvision_in_pytorch_operators_are_not_reported(name: str):
    module, _, last = f"torchvision.ops.{name}".rpartition(".")
    assert (
        findings(f"import torchvision\nfrom {module} import {last}\nf({last}, torchvision.ops.{name})") == []
    )


@pytest.mark.parametrize(
    ("source", "code", "severity"),
    [
        ("import xformers.components", "IM301", Severity.MANUAL),
        ("import xformers.ops", "IM302", Severity.REVIEW),
        ("import mamba_ssm\nf(mamba_ssm.Mamba(8))", "IM302", Severity.REVIEW),
        ("from mamba_ssm import Mamba2\nMamba2(8)", "IM301", Severity.MANUAL),
        ("from causal_conv1d import causal_conv1d_fn as f\nf()", "IM302", Severity.REVIEW),
        ("from grouped_gemm.ops import gmm\ngmm()", "IM302", Severity.REVIEW),
        ("import transformer_engine.pytorch as te\nte.Linear(2, 2)", "IM302", Severity.REVIEW),
        ("from apex.parallel import LARC\nLARC(o)", "IM302", Severity.REVIEW),
        ("from apex.fp16_utils import FP16_Optimizer\nFP16_Optimizer(o)", "IM302", Severity.REVIEW),
        ("from flash_attn.modules.mha import MHA\nMHA(8, 2)", "IM302", Severity.REVIEW),
        ("from flash_attn.modules.mlp import Mlp\nMlp(8)", "IM301", Severity.MANUAL),
        ("import bitsandbytes as bnb\nbnb.optim.AdamW8bit(p)", "IM303", Severity.REVIEW),
        ("import pynvml", "IM301", Severity.MANUAL),
        ("import nvidia.dali.fn as fn", "IM301", Severity.MANUAL),
        ("from colossalai.nn.optimizer import HybridAdam", "IM301", Severity.MANUAL),
        ("import colossalai", "IM303", Severity.REVIEW),
        ("import torchvision\nkeep = torchvision.ops.nms(b, s, 0.5)", "IM303", Severity.REVIEW),
        ("from torchvision import ops\nkeep = ops.batched_nms(b, s, i, 0.5)", "IM303", Severity.REVIEW),
        ("from torchvision.ops import RoIAlign, box_area", "IM303", Severity.REVIEW),
        ("from ultralytics.utils.torch_utils import autocast, one_cycle", "IM303", Severity.REVIEW),
        ("import torchft\nf(torchft.ProcessGroupNCCL)", "IM301", Severity.MANUAL),
        ("from apex.optimizers import FusedAdam\nf(FusedAdam)", "IM232", Severity.REVIEW),
        ("from apex.optimizers import FusedAdam\n__all__ = ['FusedAdam']", "IM232", Severity.REVIEW),
        ("from apex.parallel import DistributedDataParallel", "IM233", Severity.AUTOMATIC),
        ("import apex\nx = apex.amp.initialize(m, o)", "IM230", Severity.MANUAL),
        ("import apex\nx = apex.optimizers.FusedLAMB(p)", "IM302", Severity.REVIEW),
        ("import apex\nx = apex.optimizers.FusedNovoGrad(p)", "IM301", Severity.MANUAL),
        ("import apex.parallel as p\nx = p.DistributedDataParallel(m, 1)", "IM231", Severity.MANUAL),
        (
            "from apex.normalization.fused_layer_norm import FusedLayerNorm as n\nf(n)",
            "IM232",
            Severity.REVIEW,
        ),
        ("try:\n    import apex\nexcept ImportError:\n    pass\napex.contrib.f()", "IM301", Severity.REVIEW),
        ("from apex.normalization import MixedFusedLayerNorm as n\nf(n)", "IM302", Severity.REVIEW),
        ("from apex.optimizers import FusedLAMB\nf(FusedLAMB)", "IM302", Severity.REVIEW),
        ("from flash_attn import flash_attn_func", "IM302", Severity.REVIEW),
        ("import importlib\nimportlib.import_module('bmtrain')", "IM301", Severity.MANUAL),
        (  # a use after two imports
            "try:\n    import apex\nexcept ImportError:\n    pass\ndef f():\n    import apex\n"
            "    apex.contrib.f()",
            "IM301",
            Severity.MANUAL,
        ),
        ("from apex import amp", "IM233", Severity.AUTOMATIC),
        ("import apex\nf(apex)", "IM303", Severity.REVIEW),
        ("try:\n    import bmtrain\nexcept ImportError:\n    pass", "IM301", Severity.REVIEW),
        ("try:\n    import bmtrain\nexcept ImportError:\n    raise", "IM301", Severity.MANUAL),
        ("from tutel import moe", "IM301", Severity.MANUAL),
        (
            "from torch.testing._internal.common_distributed import skip_if_lt_x_gpu\n"
            "@skip_if_lt_x_gpu(2)\ndef test(): ...",
            "IM303",
            Severity.REVIEW,
        ),
        ("if has_horovod():\n    import horovod.torch as hvd", "IM301", Severity.REVIEW),
    ],
)
def test_libraries(source: str, code: str, severity: Severity):
    (finding,) = findings(source)
    assert (finding.code, finding.severity) == (code, severity)


def test_a_library_that_needs_attention_is_listed_once_in_a_file():
    found = findings(
        "from detectron2.layers import nms\nfrom detectron2.layers import cat\nimport fla\nnms(cat(fla.f))\n"
    )
    assert [(each.line, each.subject) for each in found] == [(1, "detectron2.layers"), (3, "fla")]


def test_compiled_extensions_are_listed_but_no_sources(tmp_path: Path):
    (tmp_path / "own_cuda.py").write_text("")
    (tmp_path / "a.py").write_text(
        "import importlib\nimport own_cuda\nfrom ops import gather_cuda\n"
        "from roi_cuda import roi\nscan = importlib.import_module('ext.scan_cuda')\n"
    )
    found = engine.analyse(tmp_path, probe=False).findings
    assert [(each.code, each.line, each.subject) for each in found] == [
        ("IM303", 4, "roi_cuda"),
        ("IM303", 5, "ext.scan_cuda"),
    ]


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ('lightning.Trainer(accelerator="gpu", strategy="ddp")', 'accelerator="gpu"'),
        ('lightning.fabric.Fabric(accelerator="cuda")', 'accelerator="cuda"'),
        ('lightning.Trainer(accelerator="auto")', "lightning.Trainer"),
        ("lightning.Fabric(devices=2)", "lightning.Fabric"),
        ('lightning.Fabric(accelerator="cpu")', ""),
        ("lightning.Trainer(**options)", ""),
        ("lightning.pytorch.Trainer(gpus=2)", "gpus=2"),
        ('onnxruntime.InferenceSession(f, providers=["CUDAExecutionProvider"])', "CUDAExecutionProvider"),
        ('ctranslate2.Translator(f, device="cuda")', 'device="cuda"'),
        ("@RunIf(min_cuda_gpus=1)\ndef a(): ...\n@RunIf(min_cuda_gpus=2)\ndef b(): ...", "min_cuda_gpus=1"),
    ],
)
def test_words_that_tell_a_library_to_use_cuda(line: str, subject: str):
    head = "import lightning, onnxruntime, ctranslate2, torch\nfrom tests.helpers import RunIf\n"
    found = [each for each in findings(f"{head}{line}\n") if each.line > 1]
    assert [(each.code, each.severity, each.subject) for each in found] == (
        [("IM304", Severity.REVIEW, subject)] if subject else []
    )


@pytest.mark.parametrize(
    ("uses", "subjects"),
    [
        ('if "gpus" in config: config["gpus"] = 2\nrun(options.gpus)', ["gpus"] * 3),
        ('config["gpus"] = 2\nlightning.Trainer(devices=config["gpus"])', ["lightning.Trainer"]),
        ("print(config.devices)", []),
    ],
)
def test_lightnings_gpus_in_a_configuration(uses: str, subjects: list[str]):
    found = findings(f"import torch\nimport pytorch_lightning as lightning\n{uses}\n")
    assert [each.subject for each in found if each.code == "IM304"] == subjects


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("from tutel import system", "is imported, not used"),
        ("from tutel import system\nsystem.init()", "is written for CUDA"),
        (
            "try:\n    import tutel\nexcept ImportError:\n    ok = False",
            "but the script continues without it",
        ),
        ("from detectron2.layers import FrozenBatchNorm2d\nFrozenBatchNorm2d(3)", "needs attention"),
        ("from detectron2.config import get_cfg\nget_cfg()", ""),
    ],
)
def test_what_is_said_of_a_library(line: str, said: str):
    found = [each.message for each in findings(f"{line}\n")]
    assert (said in found[0]) if said else not found


def test_names_of_apex_have_the_codes_of_their_rules():
    """The table of classes in convert, so that a new one is not missed here."""
    for name in COUNTERPARTS:
        assert third_party.LIBRARIES[name].code == ApexModules.code


def test_stand_ins_are_named_with_their_option():
    (finding,) = findings("from flash_attn import flash_attn_func\nflash_attn_func(q, k, v)")
    assert "isthmus run --provide flash_attn" in finding.advice
    assert "isthmus.ops.flash_attn_func" in finding.advice


def test_modules_of_the_project_are_not_libraries():
    assert not findings("from .apex import amp\nfrom . import xformers\nimport composers\n")


def test_requirements_of_setup():
    text = 'setup(install_requires=["flash-attn>=2", "numpy"], extras_require={"x": ["apex"]})'
    assert [(each.code, each.subject) for each in findings(text, "setup.py")] == [
        ("IM302", "flash-attn"),
        ("IM303", "apex"),
    ]


def test_every_code_has_a_title():
    assert all(code[:3] in codes.GROUPS for code in codes.CODES)
    assert codes.title("IM301") == codes.CODES["IM301"]
    assert codes.title("IM112") == Synchronize.summary
    assert codes.title("IM198") == codes.GROUPS["IM1"]


TRITON = """\
import triton

@triton.jit
def _block(pid): return pid

@triton.jit
def add(x): return _block(x)

@triton.jit
def passed(x): return x

def launch(x):
    if x.is_cuda:
        add[(1,)](x)
    tune(passed)
"""


def test_triton_functions_that_only_kernels_call_are_parts_of_these():
    kernels = [each for each in findings(TRITON) if each.code == "IM408"]
    assert [each.subject for each in kernels] == ["add", "passed"]
    assert ["tests for CUDA in front of its launch stay" in each.advice for each in kernels] == [True, False]
    converted = findings(TRITON.replace("if x.is_cuda:", "assert x.is_cuda\n    if x.any():"))
    assert next(each for each in converted if each.code == "IM408").advice.startswith(
        "`isthmus run` interprets it on the host chip"
    )
