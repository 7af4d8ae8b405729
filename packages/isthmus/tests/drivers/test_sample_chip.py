"""examples/sample_chip: a chip that a package of its own adds, built, installed, judged and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import native
from tests.helpers.children import output, run
from tools.repository import ROOT

EXAMPLES = ROOT / "examples"
LLAMA = [
    *("--hidden-size", "64", "--num-layers", "2", "--num-heads", "4", "--num-kv-heads", "2"),
    *("--vocab-size", "512", "--seq-length", "64", "--micro-batch-size", "2", "--global-batch-size", "4"),
    *("--iterations", "3", "--warmup", "1", "--eval-interval", "3", "--eval-samples", "4"),
]

# An operator whose result shows that it ran, and one for a dtype that the chip's own library lacks.
SECOND_LIBRARY = """
from isthmus.opset.library import Library

library = Library("second", "relu that gives 42, addition of bytes")


@library.operator("aten::relu", dtypes=("float32",), strided=True)
def relu(self, out):
    out[...] = 42


@library.operator("aten::add.Tensor", dtypes=("int8",), strided=True)
def add(self, other, alpha, out):
    out[...] = self + alpha * other
"""


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the installed package; built from a copy of the source, not in the checkout."""
    folder = tmp_path_factory.mktemp("sample")
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    source = shutil.copytree(EXAMPLES / "sample_chip", folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index"]
    # -O1 compiles in a third of the time of -O3, and -O0 in a fifth; every case would take long on that.
    flags = "-O1 -g0" if request.config.getoption("full") else "-O0 -g0"
    done = subprocess.run(
        [*command, "--target", str(folder / "site"), str(source)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "CXXFLAGS": flags, "CFLAGS": flags},
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture
def chip(site: Path) -> Callable[..., str]:
    """Run code on the sample chip with environment variables; return its output."""

    def on_chip(code: str, **environment: str) -> str:
        return output(code, **{"PYTHONPATH": str(site), "ISTHMUS_DRIVER": "sample", **environment})

    return on_chip


def isthmus(site: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isthmus", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(site), **environment},
        cwd=site.parent,
    )


# ---- Found and judged ----------------------------------------------------------------------------------


def test_its_tables_fit_the_headers() -> None:
    tables = [str(path) for path in sorted((EXAMPLES / "sample_chip/csrc").glob("*.cpp"))]
    folders = [f"-I{path}" for path in (native.CSRC, native.operator_interface())]
    done = subprocess.run(
        [*native.compiler("c++17"), *native.WARNINGS, "-fsyntax-only", *folders, *tables],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_is_found_by_its_entry_point(site: Path, chip: Callable[..., str]) -> None:
    found = chip(
        """
        from isthmus.drivers import find
        (candidate,) = find("sample").candidates
        print(candidate.origin, candidate.path, *candidate.operators)
        """
    )
    files = [f"{site}/sample_chip/{name}" for name in ("driver.so", "operators.so", "kernels.py")]
    assert found == " ".join(["entry point", *files])


@pytest.mark.full
def test_passes_the_conformance_suite(site: Path) -> None:
    done = isthmus(site, "conform", "run", "--driver", "sample")
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.strip().splitlines()[-1]
    assert summary.startswith("passed: driver sample,"), summary


@pytest.mark.full
def test_contains_no_part_of_pytorch(site: Path) -> None:
    for library in sorted((site / "sample_chip").glob("*.so")):
        needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
        assert "torch" not in needed and "python" not in needed, needed


# ---- PyTorch on it -------------------------------------------------------------------------------------


@pytest.mark.full
def test_results_are_the_cpus_and_come_from_kernels(chip: Callable[..., str]) -> None:
    printed = chip(
        """
        import torch
        torch.manual_seed(0)
        for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)):
            a, b, c = (torch.randn(*shape).to(dtype) for shape in ((33, 65), (65, 17), (65,)))
            chips = [t.to("chip") for t in (a, b, c)]
            def calls(a, b, c):
                return a + c, a @ b, a.t().softmax(0), torch.nn.functional.layer_norm(a, (65,), c)
            for ours, theirs in zip(calls(*chips), calls(a, b, c), strict=True):
                assert ours.device.type == "chip" and ours.dtype == theirs.dtype
                torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=4 * tolerance)
        stats = torch.chip.dispatch_stats()
        assert set(stats["calls"]) <= {"native", "kernel", "decomposition"}, stats
        for name in ("add.Tensor", "mm", "_softmax", "native_layer_norm"):
            assert stats["operators"]["aten::" + name]["route"] == "kernel", name
        print(torch.chip.device_count())
        """,
        ISTHMUS_STRICT="1",
    )
    assert printed == "2"


@pytest.mark.full
def test_gradients_and_a_step_of_the_optimizer(chip: Callable[..., str]) -> None:
    chip(
        """
        import copy, torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(),
            torch.nn.Linear(16, 11))
        twin = copy.deepcopy(model).to("chip")
        tokens, targets = torch.randint(11, (2, 6)), torch.randint(11, (2, 6))
        for module, device in ((model, "cpu"), (twin, "chip")):
            optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
            for _ in range(3):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(module(tokens.to(device)).flatten(0, 1),
                                                         targets.to(device).flatten())
                loss.backward()
                optimizer.step()
        for ours, theirs in zip(twin.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)
        """,
        ISTHMUS_STRICT="1",
    )


@pytest.mark.full
def test_trains_a_llama_without_leaving_the_chip(site: Path) -> None:
    script, runs = str(EXAMPLES / "pretrain_llama.py"), str(site.parent / "runs")
    done = isthmus(site, "run", "--driver", "sample", script, *LLAMA, "--output", runs, ISTHMUS_STRICT="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 delegate" in done.stdout + done.stderr and "0 fallback" in done.stdout + done.stderr


@pytest.mark.full
def test_random_numbers_repeat_after_the_same_seed(chip: Callable[..., str]) -> None:
    chip(
        """
        import torch
        def draw():
            torch.chip.manual_seed(7)
            return torch.randn(1000, device="chip").cpu(), torch.rand(1000, device="chip").cpu()
        (normal, uniform), again = draw(), draw()
        assert normal.equal(again[0]) and uniform.equal(again[1])
        assert abs(normal.mean()) < 0.15 and abs(normal.std() - 1) < 0.1
        assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05
        """
    )


@pytest.mark.full
def test_a_full_device_raises_out_of_memory(site: Path) -> None:
    done = run(
        "import torch; torch.empty(1 << 20, device='chip')",
        PYTHONPATH=str(site),
        ISTHMUS_DRIVER="sample",
        SAMPLE_CHIP_MEMORY=str(1 << 20),
    )
    assert done.returncode != 0
    assert "out of memory" in done.stderr.strip().splitlines()[-1]


# ---- Two libraries on one chip -------------------------------------------------------------------------


def described(site: Path, folder: Path, libraries: tuple[str, str]) -> str:
    """A driver.toml for the same driver, with the chip's library and the one in Python in this order."""
    (folder / "second.py").write_text(SECOND_LIBRARY)
    paths = {"own": f"{site}/sample_chip/operators.so", "second": "second.py"}
    text = f'name = "sample"\nlibrary = "{site}/sample_chip/driver.so"\noperators = ['
    description = folder / "driver.toml"
    description.write_text(text + ", ".join(f'"{paths[name]}"' for name in libraries) + "]\n")
    return str(description)


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "libraries, relu", [(("own", "second"), [0.0, 1.0]), (("second", "own"), [42.0, 42.0])]
)
def test_two_libraries_serve_one_chip_in_their_order(
    site: Path, chip: Callable[..., str], tmp_path: Path, libraries: tuple[str, str], relu: list[float]
) -> None:
    printed = chip(
        """
        import torch
        x = torch.tensor([-1.0, 1.0], device="chip")
        print(torch.relu(x).tolist())
        print(torch.relu(x.bfloat16()).tolist())  # only the chip's own library has it
        bytes = torch.tensor([1, -2], dtype=torch.int8, device="chip")
        print((bytes + bytes).tolist())  # only the second library has it
        print({torch.chip.dispatch_stats()["operators"][f"aten::{n}"]["route"] for n in ("relu", "add.Tensor")})
        """,
        ISTHMUS_DRIVER=described(site, tmp_path, libraries),
    )
    assert printed.splitlines() == [str(relu), "[0.0, 1.0]", "[2, -4]", "{'kernel'}"]
