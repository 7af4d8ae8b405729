"""Functions given as map_location move a storage by its method cuda, with conditions, names and functools.partial."""

# answer: True 2.0
# answer: True 2.0
# answer: True 2.0
# answer: True 2.0
import functools
import io

import torch

rank = 0
saved = io.BytesIO()
torch.save(torch.ones(2), saved)


def move(storage, location):
    if torch.cuda.is_available():
        return storage.cuda()
    return storage


def move_if(wanted, data, location):
    return data.cuda() if wanted and torch.cuda.is_available() else data


def show(map_location):
    saved.seek(0)
    x = torch.load(saved, map_location=map_location)
    print(x.is_cuda, x.sum().item())


show(map_location=lambda storage, location: storage.cuda(rank) if torch.cuda.is_available() else storage)
show(map_location=move)
show(map_location=functools.partial(move_if, True))
choose = move if torch.cuda.is_available() else "cpu"
show(map_location=choose)
