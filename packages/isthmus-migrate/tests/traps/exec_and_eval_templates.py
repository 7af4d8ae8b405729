"""Functions that name the device are made from text by exec and expressions are run by eval."""

# answer: built True [3.0, 3.0]
# answer: built False [2.0, 2.0]
# answer: flags True True
# answer: config True 5
import torch

TEMPLATE = """
def forward(x, device="{device}"):
    weight = torch.full((2,), {scale}, device=device)
    return x.to(device) * weight
"""


def build(device, scale):
    namespace = {"torch": torch}
    exec(compile(TEMPLATE.format(device=device, scale=scale), "<generated>", "exec"), namespace)
    return namespace["forward"]


for device, scale in (("cuda", 3.0), ("cpu", 2.0)):
    out = build(device, scale)(torch.ones(2))
    print("built", out.is_cuda, out.tolist())

flags = ["torch.cuda.is_available()", "torch.ones(1).cuda().device.type == 'cuda'"]
print("flags", *(eval(text) for text in flags))

config = {"device": "torch.device('cuda:0')", "x": "torch.arange(5, device=device)"}
scope = {"torch": torch}
for name, text in config.items():
    scope[name] = eval(text, scope)
print("config", scope["x"].is_cuda and scope["x"].device == scope["device"], len(scope["x"]))
