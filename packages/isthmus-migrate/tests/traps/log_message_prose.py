"""Log lines and error texts mention cuda in plain sentences, next to code that really picks it."""

# answer: 2
# answer: 3
# answer: out of memory
# answer: True
import io
import logging

import torch

stream = io.StringIO()
handler = logging.StreamHandler(stream)
handler.setFormatter(logging.Formatter("%(name)s|%(message)s"))
log = logging.getLogger("train.cuda")
log.setLevel(logging.INFO)
log.addHandler(handler)
log.propagate = False


def step(x, fail=False):
    if fail:
        raise RuntimeError("cuda: out of memory (this is only a rehearsal)")
    return x + 1


use_cuda = torch.cuda.is_available()
log.info("cuda found, moving the model to cuda" if use_cuda else "no cuda")
x = torch.zeros(2, device="cuda" if use_cuda else "cpu")
try:
    step(x, fail=True)
except RuntimeError as err:
    if str(err).startswith("".join(["c", "u", "d", "a"]) + ":"):
        log.warning("cuda ran out of memory, retrying")
        reason = str(err).split(": ")[1].split(" (")[0]
    else:
        reason = "unknown"
lines = stream.getvalue().splitlines()
print(len(lines))
print(sum(len(line.split("|")[1].split("cud" + "a")) - 1 for line in lines))
print(reason)
print(step(x).is_cuda)
