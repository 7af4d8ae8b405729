"""Conversion of models to float16, and copies between model and master parameters."""

from typing import Any

import torch
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

clip_grad_norm = torch.nn.utils.clip_grad_norm_
_Params = list[torch.Tensor]


class tofp16(nn.Module):
    """Casts its input to float16."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The input in float16."""
        return input.half()


def BN_convert_float(module: nn.Module) -> nn.Module:
    """Cast the batch normalizations with a weight to float32, and return the module."""
    for each in module.modules():
        if _is_affine_norm(each):
            each.float()
    return module


def _is_affine_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and bool(module.affine)


def network_to_half(network: nn.Module) -> nn.Module:
    """Cast a model to float16, except batch normalizations, and put a cast of the input before it."""
    return nn.Sequential(tofp16(), BN_convert_float(network.half()))


def convert_module(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast a module's own parameters, gradients and buffers, not those of its children."""
    for param in module.parameters(recurse=False):
        if param.dtype.is_floating_point:
            param.data = param.data.to(dtype)
        if param.grad is not None and param.grad.dtype.is_floating_point:
            param.grad.data = param.grad.data.to(dtype)
    for buffer in module.buffers(recurse=False):
        if buffer.dtype.is_floating_point:
            buffer.data = buffer.data.to(dtype)


def convert_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Cast a model except batch normalizations with a weight, and return it."""
    for module in network.modules():
        if not _is_affine_norm(module):
            convert_module(module, dtype)
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()
    return network


class FP16Model(nn.Module):
    """A model in float16, except batch normalizations, that casts its inputs.

    Args:
        network: changed in place.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = convert_network(network, torch.half)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Call the model with the inputs in float16."""
        return self.network(*(each.half() for each in inputs))


def prep_param_lists(model: nn.Module, flat_master: bool = False) -> tuple[_Params, _Params]:
    """Make float32 master parameters.

    Args:
        model: the model.
        flat_master: one master parameter for all, which need one dtype.

    Returns:
        (parameters of the model that need a gradient, master parameters).

    Raises:
        ValueError: ``flat_master`` with several dtypes.
    """
    params: _Params = [param for param in model.parameters() if param.requires_grad]
    if not flat_master:
        return params, [param.detach().clone().float().requires_grad_() for param in params]
    if len({param.dtype for param in params}) > 1:
        raise ValueError("prep_param_lists: the model has several dtypes; use flat_master=False")
    master = nn.Parameter(_flatten_dense_tensors([param.detach() for param in params]).float())
    master.grad = torch.zeros_like(master)
    return params, [master]


@torch.no_grad()
def model_grads_to_master_grads(
    model_params: _Params, master_params: _Params, flat_master: bool = False
) -> None:
    """Copy the gradients of the model to the master parameters of :func:`prep_param_lists`."""
    if flat_master:
        grads = [param.grad for param in model_params if param.grad is not None]
        assert master_params[0].grad is not None
        master_params[0].grad.copy_(_flatten_dense_tensors(grads))
        return
    for param, master in zip(model_params, master_params, strict=True):
        if param.grad is None:
            master.grad = None
        elif master.grad is None:
            master.grad = param.grad.to(master.dtype, copy=True)
        else:
            master.grad.copy_(param.grad)


@torch.no_grad()
def master_params_to_model_params(
    model_params: _Params, master_params: _Params, flat_master: bool = False
) -> None:
    """Copy the master parameters of :func:`prep_param_lists` to the model."""
    masters = master_params
    if flat_master:
        masters = list(_unflatten_dense_tensors(master_params[0].detach(), model_params))
    for param, master in zip(model_params, masters, strict=True):
        param.copy_(master)


def to_python_float(t: Any) -> Any:
    """The number in a tensor, or the first of a sequence."""
    return t.item() if hasattr(t, "item") else t[0]
