"""A child Python gets its program as text after -c, and another one as a module file in a temporary folder."""

# answer: parent True
# answer: text child True 6.0
# answer: module child True 6.0
# answer: hidden child False
import os
import subprocess
import sys
import tempfile
import textwrap

import torch

PROGRAM = textwrap.dedent("""
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.arange(4, dtype=torch.float32).to(device)
    print(x.is_cuda, x.sum().item())
""")


def child(*argv, **env):
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, env={**os.environ, **env})
    return done.stdout.strip()


print("parent", torch.zeros(1).cuda().is_cuda)
print("text child", child("-c", PROGRAM))
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "job.py"), "w") as f:
        f.write(PROGRAM)
    print(
        "module child",
        child("-m", "job", PYTHONPATH=os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])),
    )
probe = "import torch; print(torch.cuda.is_available())"
print("hidden child", child("-c", probe, CUDA_VISIBLE_DEVICES=""))
