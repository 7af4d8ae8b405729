"""Libraries that detect CUDA themselves, under `isthmus run`: they find it and compute correct results."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import run
from tests.helpers.reports import report

SCRIPTS = Path(__file__).parents[1] / "scripts"


def found_by(name: str, folder: Path, *needs: str, devices: int = 1) -> dict[str, Any]:
    """Run the script and return its results; skip the test if a library is missing."""
    for library in needs:
        if not find_spec(library):
            pytest.skip(f"no {library}")
    return report(
        "-m", "isthmus", "run", SCRIPTS / f"shim_{name}.py", folder, ISTHMUS_HOST_DEVICES=str(devices)
    )


@pytest.mark.full
def test_device_maps(tmp_path):
    found = found_by("device_map", tmp_path, "transformers", "accelerate", devices=2)
    assert found["asked"] == [True] * 4
    assert found["maps"] == [True] * 7 and found["dispatched"] and found["offloaded"]
    assert found["max_memory"] == [0, "cpu"] and found["devices"] == [0, 1]
    assert found["generated"] == [1, 10] and found["device"] == "cuda"


@pytest.mark.full
@pytest.mark.skipif(not find_spec("accelerate"), reason="no accelerate")
def test_a_smaller_batch_is_tried_when_out_of_memory():
    code = """
        import torch
        from isthmus import shim
        with shim.enter():
            from accelerate.utils import find_executable_batch_size

            tried = []

            @find_executable_batch_size(starting_batch_size=64, reduce_batch_size_fn=lambda: 64 >> len(tried))
            def train(batch_size):
                tried.append(batch_size)
                if batch_size > 16:
                    torch.empty(1 << 60, dtype=torch.int8, device="cuda")

            train()
            print(tried)
    """
    done = run(code)
    assert done.stdout.strip() == "[64, 32, 16]", done.stderr


@pytest.mark.parametrize("entry", ["from isthmus import shim; shim.enter()", "import isthmus.megatron"])
def test_megatron_starts_without_nvcc(entry: str, tmp_path: Path) -> None:
    package = tmp_path / "megatron" / "legacy" / "fused_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from torch.utils import cpp_extension\n"
        "def load(args):\n"
        "    return cpp_extension.CUDA_HOME + '/bin/nvcc'\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        {entry}
        from megatron.legacy import fused_kernels
        print(fused_kernels.load(None))
    """
    done = run(code)
    assert done.stdout.strip() == "None", done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "from bitsandbytes.cuda_specs import get_cuda_specs\nspecs = get_cuda_specs()",
        "from . import cuda_specs\nspecs = cuda_specs.get_cuda_specs()",
        "import bitsandbytes.cuda_specs as found\nspecs = found.get_cuda_specs()",
    ],
)
def test_bitsandbytes_loads_its_library_for_the_cpu(use: str, tmp_path: Path) -> None:
    """The library is chosen while the package is imported; one for CUDA cannot be opened."""
    package = tmp_path / "bitsandbytes"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.50.2'\nfrom . import cextension, functional\n")
    (package / "functional.py").write_text("")
    (package / "cuda_specs.py").write_text("def get_cuda_specs():\n    return 'cuda'\n")
    (package / "cextension.py").write_text(use)
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from isthmus import shim
        with shim.enter():
            from bitsandbytes.cextension import specs
        from bitsandbytes.cuda_specs import get_cuda_specs
        print(specs, get_cuda_specs())
    """
    done = run(code)
    assert done.stdout.strip() == "None cuda", done.stderr


def test_peft(tmp_path):
    found = found_by("peft", tmp_path, "peft", "transformers")
    assert found["losses"][0] > found["losses"][1] > found["losses"][2]
    assert found["same"] and found["merged"] and found["device"] == "cuda"


def test_trl(tmp_path):
    found = found_by("trl", tmp_path, "trl", "datasets")
    assert found["device"] == "cuda"
    for precision in ("bf16", "fp16", "no"):
        assert found[precision][0] > found[precision][-1]
        assert found[precision] == pytest.approx(found["no"], rel=0.05)


def test_diffusers(tmp_path):
    found = found_by("diffusers", tmp_path, "diffusers")
    assert found["losses"][0] > found["losses"][-1]
    assert found["offloaded"] < 1e-6 and found["half"] < 0.05 and found["device"] == "cuda"


@pytest.mark.skipif(not find_spec("deepspeed"), reason="no deepspeed")
def test_the_shim_after_deepspeed_has_chosen():
    code = """
        from deepspeed.accelerator import get_accelerator
        get_accelerator()
        import torch
        from isthmus import shim
        for _ in range(2):
            with shim.enter():
                print(torch.ones(1, device="cuda").device.type, get_accelerator()._name)
    """
    done = run(code, DS_ACCELERATOR=None)
    assert done.stdout.splitlines().count("cuda cpu") == 2, done.stderr
    assert "UserWarning: DeepSpeed has already selected the accelerator 'cpu'" in done.stderr
