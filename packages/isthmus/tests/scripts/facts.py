"""Print what a program can see of how it was started."""
# ruff: noqa - written as its author would

import json
import os
import sys

facts = {
    "name": __name__,
    "file": os.path.basename(globals().get("__file__", "none")),
    "argv": [os.path.basename(argument) for argument in sys.argv],
    "path": sys.path[0],
    "spec": __spec__ is not None,
    "package": __package__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "modules": [name for name in ("torch", "typer", "rich", "pydantic") if name in sys.modules],
}
import torch

facts["cuda"] = torch.zeros(1, device="cuda").is_cuda
facts["unbuffered"] = sys.stdout.line_buffering or bool(getattr(sys.stdout, "write_through", False))
print(json.dumps(facts))
