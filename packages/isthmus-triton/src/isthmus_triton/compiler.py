"""The compiler that Triton finds: from its TTIR to C, and to a shared library."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget

from isthmus_triton import build, kernel, npu, ranges
from isthmus_triton.analysis import Sharing
from isthmus_triton.debug.requests import is_requested
from isthmus_triton.driver import Driver, is_in_job
from isthmus_triton.host import CHECKED_HOST
from isthmus_triton.refusals import Unsupported

npu.add_modules()


@dataclass(frozen=True)
class Options:
    """Options of a launch, with Triton's names. Numbers of warps and stages mean nothing here."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    warp_size: int = 1
    maxnreg: int | None = None
    debug: bool = False
    checks_accesses: bool = False
    sanitize_overflow: bool = False
    backend_name: str = "cpu"
    arch: str = "native"
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    max_num_imprecise_acc_default: int = 0
    extern_libs: tuple[Any, ...] = ()
    ir_override: str | None = None
    instrumentation_mode: str = ""
    shared: int = 0
    # From Triton 3.9 on.
    clc: bool = False
    fpsan_homomorphic_casts: bool = False
    min_shared_mem: int | None = None
    sched4reg: bool = False

    def __post_init__(self) -> None:
        """Refuse what no GPU takes."""
        assert self.num_warps > 0 and not self.num_warps & (self.num_warps - 1), (
            "num_warps must be a power of 2"
        )

    def hash(self) -> str:
        """A digest of all of them."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


class Backend(BaseBackend):  # type: ignore[misc]
    """Prints C and compiles it."""

    binary_ext = "so"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether the target is a CPU, the host chip, an NPU, or in a job the GPU that the chip stands for."""
        if target.backend == "cuda" and not is_in_job():
            return False
        return target.backend == "cpu" or (target.backend in ("chip", "npu", "cuda") and Driver.is_active())

    def hash(self) -> str:
        """A digest of what compiled kernels depend on."""
        return build.fingerprint()

    def parse_options(self, options: dict[str, Any]) -> Options:
        """Known options of a launch.

        Raises:
            ValueError: one asks for what a CPU cannot do.
        """
        if options.get("launch_cooperative_grid"):
            raise ValueError(
                "launch_cooperative_grid: programs of a grid cannot wait for each other here; split the kernel"
            )
        known = {each.name for each in fields(Options)}
        given = {name: value for name, value in options.items() if name in known and value is not None}
        given.setdefault("enable_fp_fusion", knobs.language.default_fp_fusion)
        given["debug"] = given.get("debug", False) or is_requested()
        is_inductor = options.get("sanitize_overflow") is False  # which asks for assertions alone
        given.setdefault("checks_accesses", is_requested() or (given["debug"] and not is_inductor))
        found = Options(**given)
        if self.target.backend == "npu":
            vars(found).update({name: options[name] for name in npu.OPTIONS & options.keys()})
        return found

    def pack_metadata(self, metadata: Any) -> tuple[()]:
        """The launcher needs nothing."""
        return ()

    def get_codegen_implementation(self, options: Options) -> dict[str, Any]:
        """Products of any size; conversions of the one format that TTIR has no type for."""
        return {"min_dot_size": lambda left, right: (1, 1, 1), "convert_custom_types": _converted}

    def get_module_map(self) -> dict[str, ModuleType]:
        """libdevice's functions keep CUDA's names; the printer knows them."""
        from triton.language.extra.cuda import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        """Triton's own are enough."""

    def add_stages(self, stages: dict[str, Any], options: Options, language: Any = None) -> None:
        """TTIR, C, library."""
        stages["ttir"] = _optimised
        stages["c"] = functools.partial(_printed, is_debugged=options.checks_accesses)
        stages["so"] = lambda source, metadata: build.library(
            source, options.enable_fp_fusion, options.checks_accesses or metadata["wraps"] == "always"
        )


def _converted(value: Any, to: Any, rounding: Any = None, _semantic: Any = None) -> Any:
    """A number as, or from, one of the 8 bits of fp8e4b15, which TTIR calls i8."""
    from triton import language  # which imports this module

    name = f"{'from' if value.dtype.is_fp8e4b15() else 'to'}_e4m3_b15"
    if name.startswith("to") and not value.dtype.is_fp32():
        value = _semantic.cast(value, language.float32)
    symbols = {(value.dtype,): (name, to.scalar)}
    return language.core.extern_elementwise("", "", [value], symbols, True, _semantic=_semantic)


def _optimised(module: Any, metadata: dict[str, Any]) -> Any:
    manager = ir.pass_manager(module.context)
    passes.common.add_inliner(manager)
    if hasattr(
        passes.ttir, "add_rewrite_tensor_pointer"
    ):  # from 3.8 on the front end makes block pointers of pointers
        passes.ttir.add_rewrite_tensor_pointer(manager)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.ttir.add_triton_licm(manager)
    passes.common.add_licm(manager)
    passes.common.add_symbol_dce(manager)
    passes.ttir.add_loop_unroll(manager)
    passes.common.add_canonicalizer(manager)
    passes.common.add_cse(manager)
    manager.run(module, "make_ttir")
    return module


def _printed(module: Any, metadata: dict[str, Any], is_debugged: bool) -> str:
    metadata["name"] = module.get_entry_func_name()
    metadata["shared"] = 1  # scripts divide by it
    text = module.str_nodebug()
    if is_debugged or "tt.assert" in text:
        text = module.str()  # with the lines of the source
    metadata["ttir"], bound = text, ranges.largest(text)
    metadata["wraps"] = "sometimes" if not bound.isdecimal() else "always" if int(bound) else "never"
    try:
        if is_debugged:
            return kernel.to_c(text, Sharing.PARTS, CHECKED_HOST)
        return kernel.to_c(text, bound=bound if metadata["wraps"] == "sometimes" else "")
    except Unsupported as error:
        raise NotImplementedError(
            f"Triton kernel {metadata['name']!r} uses {error}, which cannot be printed as C"
        ) from None
