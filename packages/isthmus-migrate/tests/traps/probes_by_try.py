"""A machine without CUDA is recognised by the error of a call: a move, a factory, or the name of the device."""

# answer: True True True
# answer: 256
# answer: True
import torch


def moves():
    try:
        torch.zeros(1).cuda()
        return True
    except Exception:
        return False


def makes():
    try:
        torch.empty(1, device="cuda")
    except (RuntimeError, AssertionError):
        return False
    return True


def starts():
    try:
        torch.cuda.init()
        torch.cuda.current_device()
    except:  # noqa: E722
        return False
    return True


print(moves(), makes(), starts())
print(256 if moves() else 8)
try:
    name = torch.cuda.get_device_name(0)
except Exception:
    name = None
print(isinstance(name, str))
