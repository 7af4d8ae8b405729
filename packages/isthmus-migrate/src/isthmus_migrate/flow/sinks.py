"""Parameters by which PyTorch and libraries built on it take a device or a backend."""

from isthmus_migrate.source.verdicts import Use

# Libraries whose parameters with these names are PyTorch's devices.
LIBRARIES = frozenset(
    "torch apex torchvision torchaudio torchtext accelerate clip dgl diffusers e3nn fairseq gpytorch "
    "kornia lightning lm_eval monai open_clip peft pyro pytorch_lightning sentence_transformers stable_baselines3 "
    "timm torch_geometric torchmetrics transformers trl ultralytics whisper".split()
)
_KEYWORDS = frozenset(
    "device device_type map_location output_device device_ids default_device main_device torch_device".split()
)
_BACKEND_KEYWORDS = frozenset({"backend", "dist_backend", "process_group_backend"})
# Positions of parameters that are devices.
_POSITIONS = {
    "torch.device": 0,
    "torch.Generator": 0,
    "torch.autocast": 0,
    "torch.amp.autocast": 0,
    "torch.amp.GradScaler": 0,
    "torch.get_device_module": 0,
    "torch.get_autocast_dtype": 0,
    "torch.set_autocast_dtype": 0,
    "torch.is_autocast_enabled": 0,
    "torch.set_default_device": 0,
    "torch.load": 1,
    "torch.jit.load": 1,
    "torch.random.fork_rng": 4,
    "torch.distributed.get_default_backend_for_device": 0,
}
_BACKENDS = {
    "torch.distributed.init_process_group": 0,
    "torch.distributed.distributed_c10d.init_process_group": 0,
    "torch.distributed.is_backend_available": 0,
    "torch.distributed.new_group": 2,
}
# Methods of tensors and modules, whoever the object is.
_METHODS = {"to": 0, "cuda": 0, "to_empty": None, "pin_memory": 0, "is_pinned": 0}
_DEVICE_METHODS = frozenset(
    "new_zeros new_ones new_full new_empty new_tensor new_empty_strided to_empty to cuda pin_memory".split()
)
# Functions of torch.cuda whose first parameter is no device.
_NO_DEVICE = frozenset(
    "amp stream Stream Event set_stream set_rng_state_all graph CUDAGraph manual_seed manual_seed_all nvtx "
    "set_per_process_memory_fraction comm".split()
)


def of_function(name: str, argument: str | int) -> Use | None:
    """Return what a function of PyTorch, or of a library built on it, takes an argument as.

    Args:
        name: dotted name of the function.
        argument: its position, or the name of the parameter.
    """
    library = name.partition(".")[0]
    if library not in LIBRARIES:
        return Use.DEVICE if argument == "map_location" else None
    if isinstance(argument, str):
        if argument in _BACKEND_KEYWORDS:
            return Use.BACKEND if "distributed" in name or library != "torch" else None
        return Use.DEVICE if argument in _KEYWORDS else None
    if _BACKENDS.get(name) == argument:
        return Use.BACKEND
    if argument == 0 and name.rpartition(".")[2] in ("init_device_mesh", "DeviceMesh"):  # under several paths
        return Use.DEVICE
    if _POSITIONS.get(name) == argument:
        return Use.DEVICE
    if name.startswith("torch.cuda.") and argument == 0 and name.split(".")[2] not in _NO_DEVICE:
        return Use.DEVICE
    if name in ("torch.cuda.set_rng_state", "torch.cuda.comm.broadcast") and argument == 1:
        return Use.DEVICE
    return None


def of_method(name: str, argument: str | int) -> Use | None:
    """Return what a method of a tensor, module or storage takes an argument as; see :func:`of_function`."""
    if isinstance(argument, str):
        if argument == "map_location":
            return Use.DEVICE
        return Use.DEVICE if argument == "device" and name in _DEVICE_METHODS else None
    return Use.DEVICE if name in _METHODS and _METHODS[name] == argument else None


def is_torch(name: str) -> bool:
    """Whether a dotted name is of PyTorch or of a library built on it."""
    return name.partition(".")[0] in LIBRARIES
