"""``amp.initialize``: the levels O0 to O3 and their options."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from . import functions
from .losses import LossScaler, State
from .optimizers import Stash


@dataclass(frozen=True)
class Properties:
    """Options of a level; apex's names.

    Attributes:
        cast_model_type: dtype of parameters, buffers and inputs; None leaves them.
        patch_torch_functions: choose the precision operator by operator.
        keep_batchnorm_fp32: leave affine batch norms in float32 under a cast.
        master_weights: the optimizer updates float32 copies of float16 parameters.
        loss_scale: "dynamic" or a number.
        enabled: False leaves models, optimizers and losses alone.
    """

    cast_model_type: torch.dtype | None
    patch_torch_functions: bool
    keep_batchnorm_fp32: bool | None
    master_weights: bool | None
    loss_scale: Any
    enabled: bool = True


LEVELS = {
    "O0": Properties(torch.float32, False, None, False, 1.0),
    "O1": Properties(None, True, None, None, "dynamic"),
    "O2": Properties(torch.float16, False, True, True, "dynamic"),
    "O3": Properties(torch.float16, False, False, False, 1.0),
}


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | str | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
) -> Any:
    """Prepare models and optimizers for mixed precision, in place; call it before DistributedDataParallel.

    Args:
        models: a module, or a list, with float32 parameters.
        optimizers: one, a list, or None.
        enabled: False does nothing.
        opt_level: O0 is float32; O1 autocast; O2 float16 with float32 master weights; O3 float16.
        cast_model_type, patch_torch_functions, keep_batchnorm_fp32, master_weights, loss_scale: in place of those of
            the level, if not None.
        cast_model_outputs: dtype of the models' outputs; float32 where inputs are cast.
        num_losses: losses with a scale of their own.
        verbosity: 0 prints nothing.
        min_loss_scale, max_loss_scale: limits of a dynamic scale.

    Returns:
        The models, or (models, optimizers) if there are optimizers.

    Raises:
        RuntimeError: unknown level, an option that contradicts it, or parameters in float16.
        TypeError: not modules, or not optimizers.
    """
    if opt_level not in LEVELS:
        raise RuntimeError(
            f"amp.initialize: opt_level {opt_level!r}; expected {', '.join(LEVELS)} (letter O)"
        )
    given = {
        "cast_model_type": cast_model_type, "patch_torch_functions": patch_torch_functions,
        "keep_batchnorm_fp32": keep_batchnorm_fp32, "master_weights": master_weights, "loss_scale": loss_scale,
    }  # fmt: skip
    options = replace(_with(opt_level, given), enabled=enabled)
    State.properties = options
    result = models if optimizers is None else (models, optimizers)
    if not enabled:
        return result
    _prepare(_listed(models, nn.Module), options, cast_model_outputs)
    for optimizer in _listed([] if optimizers is None else optimizers, Optimizer):
        Stash(optimizer, bool(options.master_weights), options.patch_torch_functions)
    State.scalers = tuple(
        LossScaler(options.loss_scale, min_loss_scale, max_loss_scale) for _ in range(num_losses)
    )
    if options.patch_torch_functions:
        functions.activate()
    if verbosity:
        print(f"Selected optimization level {opt_level}: {options}")
    return result


def _with(level: str, given: dict[str, Any]) -> Properties:
    """The options of a level with those given."""
    given = {name: value for name, value in given.items() if value is not None}
    words = {"True": True, "False": False}
    if isinstance(given.get("keep_batchnorm_fp32"), str):
        given["keep_batchnorm_fp32"] = words[given["keep_batchnorm_fp32"]]
    if isinstance(given.get("loss_scale"), str) and given["loss_scale"] != "dynamic":
        given["loss_scale"] = float(given["loss_scale"])
    refused = ("cast_model_type", "keep_batchnorm_fp32", "master_weights") if level == "O1" else ()
    for name in refused:
        if given.get(name):
            raise RuntimeError(
                f"amp.initialize: {name} must be None with O1, which casts operator by operator"
            )
    if level != "O1" and given.get("patch_torch_functions"):
        raise RuntimeError("amp.initialize: patch_torch_functions=True needs opt_level O1")
    return replace(LEVELS[level], **given)


def _listed(values: Any, kind: type) -> list[Any]:
    found = list(values) if isinstance(values, (list, tuple)) else [values]
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(
                f"amp.initialize: expected {kind.__name__} or a list of them, got {type(each).__name__}"
            )
    return found


def _prepare(models: list[nn.Module], options: Properties, outputs: torch.dtype | None) -> None:
    for model in models:
        for name, param in model.named_parameters():
            if param.dtype in (torch.float16, torch.bfloat16):
                raise RuntimeError(
                    f"amp.initialize: parameter {name} is {param.dtype}; pass the model in float32"
                )
        if options.cast_model_type is not None:
            _cast(model, options.cast_model_type, bool(options.keep_batchnorm_fp32))
            model._register_state_dict_hook(_in_float32)
        if options.cast_model_type is not None or outputs is not None:
            model.forward = _casting(model.forward, options.cast_model_type, outputs or torch.float32)


def _cast(model: nn.Module, dtype: torch.dtype, keeps_norms: bool) -> None:
    for module in model.modules():
        is_norm = isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine
        if not (keeps_norms and is_norm):
            module._apply(functions.to_type(dtype), recurse=False)


def _casting(
    forward: Callable[..., Any], inputs: torch.dtype | None, outputs: torch.dtype
) -> Callable[..., Any]:
    def cast(*args: Any, **kwargs: Any) -> Any:
        if inputs is not None:
            args, kwargs = functions.applied(functions.to_type(inputs), (args, kwargs))
        return functions.applied(functions.to_type(outputs), forward(*args, **kwargs))

    return cast


def _in_float32(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Let ``model.state_dict()`` return float32, so that a checkpoint does not depend on the level."""
    for name, value in state.items():
        if name.startswith(prefix) and isinstance(value, torch.Tensor):
            state[name] = functions.to_type(torch.float32)(value)


def state_dict(destination: dict[str, Any] | None = None) -> dict[str, Any]:
    """Scales of the losses: ``{"loss_scaler0": {"loss_scale": ..., "unskipped": ...}, ...}``."""
    found = OrderedDict() if destination is None else destination
    for index, scaler in enumerate(State.scalers):
        found[f"loss_scaler{index}"] = {"loss_scale": scaler.value, "unskipped": scaler.unskipped}
    return found


def load_state_dict(state_dict: dict[str, Any]) -> None:
    """Restore the scales; those beyond ``num_losses`` are skipped.

    Raises:
        RuntimeError: a key is not that of a loss.
    """
    if unexpected := [key for key in state_dict if "loss_scaler" not in key]:
        raise RuntimeError(f"amp.load_state_dict: unexpected keys {', '.join(unexpected)}")
    if len(state_dict) != len(State.scalers):
        print(
            f"Warning: state_dict contains {len(state_dict)} entries, while {len(State.scalers)} losses are used"
        )
    for scaler, saved in zip(State.scalers, state_dict.values(), strict=False):
        scaler.value, scaler.unskipped = saved["loss_scale"], saved["unskipped"]
