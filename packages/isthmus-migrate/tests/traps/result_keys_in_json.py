"""The key cuda belongs to the layout of a results file that another program reads; only the tensors are on a device."""

# answer: 65
# answer: 9.0
# answer: missing
# answer: True
import json

import torch

SCHEMA = {"required": ["cpu", "cuda", "cuda_peak"], "title": "cuda vs cpu"}


def run(where):
    x = torch.arange(4.0).to(where)
    return (x * 1.5).sum(), x


def report():
    results = {"cpu": None, "cuda": None, "cuda_peak": 0}
    results["cpu"] = run("cpu")[0].item()
    total, x = run("cuda")
    results["cuda"] = total.item()
    results["title"] = SCHEMA["title"]
    return json.dumps(results, sort_keys=True), x


text, x = report()
print(len(text))
# the plotting script is not ours and reads the file with its own spelling
keys = ["".join(("cu", "da"))]
loaded = json.loads(text)
print(loaded.get(keys[0], "missing"))
print(loaded.get("gpu", "missing"))
print(x.device.type != "cpu" and all(k in loaded for k in SCHEMA["required"]))
