"""Plugins are written as dotted names in a table, some of them in torch.cuda, and loaded when first used."""

# answer: loaded 6
# answer: available True
# answer: device True 0
# answer: seeded True
# answer: pipeline True [0.0, 0.0, 2.0]
# answer: stream True
import json
import pkgutil

import torch

CONFIG = json.loads("""{
  "probe": "torch.cuda:is_available",
  "index": "torch.cuda:current_device",
  "seed": "torch.cuda:manual_seed_all",
  "wait": "torch.cuda:synchronize",
  "stream": "torch.cuda:Stream",
  "act": "torch.nn.functional:relu",
  "stages": ["cuda", "act", "clone", "wait", "cpu"]
}""")
PLUGINS = {name: pkgutil.resolve_name(path) for name, path in CONFIG.items() if isinstance(path, str)}


def run(x):
    seen = []
    for stage in CONFIG["stages"]:
        if hasattr(x, stage):
            x = getattr(x, stage)()
        else:
            plugin = PLUGINS[stage]
            x = plugin() or x if stage == "wait" else plugin(x)
        seen.append(x.is_cuda)
    return seen, x


print("loaded", len(PLUGINS))
print("available", PLUGINS["probe"]())
print("device", torch.zeros(1, device=PLUGINS["index"]()).is_cuda, PLUGINS["index"]())
draws = [(PLUGINS["seed"](7), torch.rand(3, device="cuda"))[1] for _ in range(2)]
print("seeded", torch.equal(*draws))
seen, out = run(torch.tensor([-1.0, 0.0, 2.0]))
print("pipeline", seen == [True] * 4 + [False], out.tolist())
print("stream", isinstance(PLUGINS["stream"](), torch.cuda.Stream))
