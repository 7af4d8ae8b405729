"""Scripts that `--ddp` converts, and scripts that it does not change, with the reason."""

from __future__ import annotations

import ast

import pytest

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.rules.data_parallel import DataParallel
from isthmus_migrate.source.findings import LEFT, Finding

SCRIPT = """\
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from project import Data, Net

device = torch.device("cuda:0")
loader = DataLoader(Data(), batch_size=8, shuffle=True)
test_loader = DataLoader(Data(test=True), batch_size=8)
criterion = nn.CrossEntropyLoss()
model = Net()
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def converted(source: str) -> Result:
    return convert_source(source, "train.py", rules=[DataParallel], options=["ddp"])


def left(result: Result) -> list[Finding]:
    """Findings that the conversion leaves to a person."""
    return [each for each in result.findings if each.severity in LEFT]


def changed(*edits: tuple[str, str]) -> str:
    """The script with edits to it."""
    source = SCRIPT
    for old, new in edits:
        assert old in source
        source = source.replace(old, new, 1)
    return source


def body(source: str) -> str:
    """Return the text after the helpers in the converted script."""
    result = converted(source)
    assert not left(result)
    ast.parse(result.text)
    return result.text.partition("\nstart_process_group()\n")[2]


STREAM = changed(("device =", "class Data(torch.utils.data.IterableDataset):\n    pass\n\n\ndevice ="))
WRAPPED = "torch.nn.parallel.DistributedDataParallel(model, process_group=model_group()"
TWO = "other = Net()\nother.parameters()\nmodel = N"


def in_loop(*lines: str) -> str:
    """The script with more lines at the end of the training loop."""
    return SCRIPT + "".join(f"        {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (changed(("DataLoader(Data(), batch_size=8, shuffle=True)", "Data()")), "not in a loop over a DataLoader"),
        (changed(("shuffle=True", "sampler=mine")), "already has a sampler"),
        (SCRIPT + "for x, y in loader:\n    model(x)\n", "is also iterated outside of training"),
        (SCRIPT + "print(loader.batch_size)\n", "is read for its batch_size"),
        (changed(("CrossEntropyLoss()", "CrossEntropyLoss(reduction='sum')")), "a sum over the batch"),
        (changed(("for epoch in range(3):", "epoch = 0\nwhile epoch < 3:")), "a while loop"),
        (in_loop("if x.max() > 3:", "    continue"), "control flow depends on a rank's own data"),
        (in_loop("if x.max() > 3:", "    print(loss.item())"), "under a condition on a rank's own data"),
        (in_loop("print(x.max().item())"), "unclear how to reduce this number over ranks: x.max()"),
        (SCRIPT + "    if loss < 0.1:\n        break\n", "control flow depends on a rank's own data"),
        (in_loop("if time.time() > end:", "    print(loss.item())"), "under a condition on a rank's own data"),
        (in_loop("draw = random.random()", "if draw < 0.5:", "    continue"), "control flow depends on a rank's own"),
        (changed(("DataLoader(Data(),", "DataLoader(Data()) if small else DataLoader(Data(),")), "several loaders"),
        (changed(("nn.CrossEntropyLoss()", "project.Contrast()"), ("import", "import project\nimport")), "unclear"),
        (STREAM, "an IterableDataset gives every rank the same samples"),
        (changed(("model(x.to(device))", "model.loss(x.to(device))")), "no model of this file is called"),
        (changed(('torch.device("cuda:0")', 'torch.device("cuda", 0)')), "the device index is an argument"),
        (changed(('torch.device("cuda:0")', "0")), "the device is a number"),
        (SCRIPT + "RANK = 3\n", "defines RANK itself"),
        (changed(("model(x.to(device))", "other(model(x))"), ("model = N", TWO)), "several models"),
    ],
)  # fmt: skip
def test_unrecognised_scripts_are_not_changed(source: str, reason: str) -> None:
    result = converted(source)
    assert (result.text, list(result.changes)) == (source, [])
    (finding,) = left(result)
    assert reason in finding.message
    assert finding.code == "IM210"
    assert finding.line > 0


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nx = torch.ones(2, requires_grad=True)\nprint(x)  # no backward\n",
        SCRIPT.replace("import torch\n", "import torch\ntorch.distributed.init_process_group()\n", 1),
        "from accelerate import Accelerator\n" + SCRIPT,
        SCRIPT.replace("model.to(device)", "nn.parallel.DistributedDataParallel(model.to(device))"),
        SCRIPT + "torch.multiprocessing.spawn(main, nprocs=2)\n",
    ],
)
def test_nothing_to_convert(source: str) -> None:
    result = converted(source)
    assert (result.text, list(result.changes), left(result)) == (source, [], [])
    said = [each.message for each in result.findings]
    assert said == ["already trains in several processes, or by a library that does"] * (
        "backward" in said_by(source)
    )


def said_by(source: str) -> set[str]:
    """The attributes that a source reads."""
    return {each.attr for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Attribute)}


def test_without_the_option_data_parallel_is_reported() -> None:
    source = changed(("model.to(device)", "nn.DataParallel(model)"))
    result = convert_source(source, "train.py", rules=[DataParallel])
    assert (result.text, list(result.changes)) == (source, [])
    (finding,) = left(result)
    assert (finding.code, finding.line, finding.subject) == ("IM210", 15, "torch.nn.DataParallel")
    assert "--ddp" in finding.advice
    assert not left(convert_source(SCRIPT, "train.py", rules=[DataParallel]))


def test_one_wrap_after_the_model_is_on_its_device() -> None:
    text = body(SCRIPT)
    assert text.count("DistributedDataParallel") == 1
    assert f"model = model.to(device)\nmodel = {WRAPPED})\noptim" in text


@pytest.mark.parametrize(
    "wrap",
    [
        "model = nn.DataParallel(model, device_ids=[0, 1]).to(device)",
        "model = nn.DataParallel(model.to(device))",
        "model.to(device)\nif torch.cuda.device_count() > 1:\n    print('2')\n    model = nn.DataParallel(model)",
        "model = torch.nn.DataParallel(module=model).cuda(0)",
    ],
)
def test_data_parallel_is_removed(wrap: str) -> None:
    text = body(changed(("model = model.to(device)", wrap)))
    assert "DataParallel(" in text
    assert text.count("DataParallel") == 1
    assert "device_count" not in text


def test_inputs_that_data_parallel_moved_are_moved() -> None:
    source = changed(
        ("model.to(device)", "nn.DataParallel(model).to(device)"), ("model(x.to(device))", "model(x)")
    )
    assert f'{WRAPPED}, device_ids=[LOCAL_RANK] if DEVICE.type != "cpu" else None)' in body(source)


def test_only_the_training_loader_is_sharded() -> None:
    text = body(SCRIPT)
    assert "\nloader = training_loader(Data(), batch_size=8, shuffle=True)\n" in text
    assert "\ntest_loader = DataLoader(Data(test=True), batch_size=8)\n" in text
    assert "    loader.sampler.set_epoch(epoch)\n    for i, (x, y) in enumerate(loader):\n" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("total += loss.item() * x.size(0)", "total += mean_over_ranks(loss).item() * (x.size(0) * WORLD_SIZE)"),
        ("seen += len(y)", "seen += len(y) * WORLD_SIZE"),
        ("hits += (model(x).argmax(1) == y).sum().item()",
         "hits += sum_over_ranks((model(x).argmax(1) == y).sum()).item()"),
        ("total += loss.detach()", "total += mean_over_ranks(loss).detach()"),
        ("losses.append(loss.item())", "losses.append(mean_over_ranks(loss).item())"),
        ("print(f'{loss:.3f}')", "print_once(f'{mean_over_ranks(loss):.3f}')"),
        ("value = float(loss)", "value = float(mean_over_ranks(loss))"),
        ("seen += y.numel()", "seen += y.numel() * WORLD_SIZE"),
        ("term = loss.item() * len(y)", "term = mean_over_ranks(loss).item() * (len(y) * WORLD_SIZE)"),
        ("x = x.view(x.size(0), -1)", "x = x.view(x.size(0), -1)"),
        ("hits += np.sum(model(x).cpu().numpy() == y.cpu().numpy())",
         "hits += sum_over_ranks(torch.as_tensor(np.sum(model(x).cpu().numpy() == y.cpu().numpy()), "
         "device=DEVICE)).item()"),
    ],
)  # fmt: skip
def test_metrics_are_those_of_the_global_batch(before: str, after: str) -> None:
    assert f"        {after}\n" in body(in_loop(before))


def test_a_condition_on_the_batch_number_is_the_same_on_all_ranks() -> None:
    assert "mean_over_ranks(loss)" in body(in_loop("if i % 10 == 0:", "    print(loss.item())"))


ACCURACY = """\
def accuracy(output, target, topk=(1,)):
    batch_size = target.size(0)
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        res.append(correct_k.mul_(100.0 / batch_size))
    return res


"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("top1 = accuracy(out, y)[0]\n        print(top1.item())", "print_once(mean_over_ranks(top1).item())"),
        ("top1, top5 = accuracy(out, y, (1, 5))\n        meter.append(top5[0])",
         "meter.append(mean_over_ranks(top5[0]))"),
        ("hits = (out.argmax(1) == y).sum() / len(y)\n        print(hits.item())",
         "print_once(mean_over_ranks(hits).item())"),
        ("hits = 100.0 / len(y) * (out.argmax(1) == y).sum()\n        print(hits.item())",
         "print_once(mean_over_ranks(hits).item())"),
        ("wrong = len(y) - (out.argmax(1) == y).sum()\n        print(wrong.item())",
         "print_once(sum_over_ranks(wrong).item())"),
        ("total = loss * len(y)\n        print(total.item())", "print_once(sum_over_ranks(total).item())"),
    ],
)  # fmt: skip
def test_a_sum_divided_by_the_batch_size_is_a_mean(before: str, after: str) -> None:
    source = in_loop("out = model(x)", *before.split("\n        ")).replace(
        "device =", f"{ACCURACY}device =", 1
    )
    result = converted(source)
    assert f"        {after}\n" in result.text
    assert ACCURACY in result.text  # reduced where it is called: validation measures whole batches
    assert any("over the ranks" in each.advice for each in result.changes)


def test_loaders_in_branches_and_a_sampler_of_none() -> None:
    source = changed(
        (
            "loader = DataLoader(Data(), batch_size=8, shuffle=True)",
            "loader = sampler = None\nif small:\n"
            "    loader = DataLoader(Data(), batch_size=8, shuffle=sampler is None, sampler=sampler)\n"
            "else:\n    loader = DataLoader(Data(), batch_size=8)",
        )
    )
    text = body(source)
    assert "    loader = training_loader(Data(), batch_size=8, shuffle=sampler is None)\nelse:\n" in text
    assert "    loader = training_loader(Data(), batch_size=8)\ntest_loader" in text


def test_inputs_are_moved_where_evaluation_relied_on_it() -> None:
    source = changed(("model.to(device)", "nn.DataParallel(model).to(device)"))
    assert "device_ids" not in body(source)
    assert "device_ids" in body(source + "    for x, y in test_loader:\n        model(x)\n")


def test_the_reason_is_the_number_that_is_not_understood() -> None:
    (finding,) = left(converted(in_loop("squares = loss * loss", "print(squares.item())")))
    assert finding.message == "unclear how to reduce this number over ranks: loss * loss"


def test_running_sums_are_reduced_once() -> None:
    text = body(
        in_loop("hits += (model(x).argmax(1) == y).sum()", "seen += len(y)", "print(i, hits / seen)")
        + "    print(epoch, hits / seen)\n"
    )
    assert "        print_once(i, hits / seen)\n    print_once(epoch, hits / seen)\n" in text


def test_the_divisor_of_a_reduced_sum_is_reduced() -> None:
    text = body(
        in_loop(
            "hits = (model(x).argmax(1) == y).sum().item()", "accuracy = hits / len(y)", "print(accuracy)"
        )
    )
    assert "accuracy = hits / (len(y) * WORLD_SIZE)\n        print_once(accuracy)\n" in text


def test_values_of_the_last_batch_are_reduced() -> None:
    text = body(SCRIPT + "    print(epoch, loss.item(), len(x))\n")
    assert "    print_once(epoch, mean_over_ranks(loss).item(), len(x) * WORLD_SIZE)\n" in text


def test_names_reassigned_after_the_loop_are_not_changed() -> None:
    text = body(
        SCRIPT
        + "    for x, y in test_loader:\n        loss = criterion(model(x), y)\n        print(loss.item())\n"
        + "    print(sum(x.sum().item() for x, y in test_loader))\n"
    )
    assert "        print_once(loss.item())\n    print_once(sum(x.sum().item() for" in text


def test_a_meter_gets_reduced_numbers_and_is_not_changed() -> None:
    meter = "class Meter:\n    def update(self, value, n):\n        self.sum += value * n\n        self.count += n\n"
    source = changed(("device =", f"{meter}\n\nmeter = Meter()\ndevice ="))
    text = body(source + "        meter.update(loss.item(), x.size(0))\n")
    assert meter in converted(source + "        meter.update(loss.item(), x.size(0))\n").text
    assert "meter.update(mean_over_ranks(loss).item(), x.size(0) * WORLD_SIZE)" in text


@pytest.mark.parametrize("iterated", ["tqdm(enumerate(loader))", "bar"])
def test_a_bar_around_the_loader(iterated: str) -> None:
    source = changed(("import torch\n", "import torch\nfrom tqdm import tqdm\n"))
    assert "enumerate(loader)" in source
    source = source.replace("    for i, (x, y) in enumerate(loader)", f"    for i, (x, y) in {iterated}")
    if iterated == "bar":
        source = source.replace("    for i,", "    bar = tqdm(enumerate(loader))\n    for i,")
    text = body(source + "        if i % 10 == 0:\n            print(loss.item())\n")
    assert "tqdm(enumerate(loader), disable=RANK != 0)" in text
    assert "loader.sampler.set_epoch(epoch)" in text
    assert "print_once(mean_over_ranks(loss).item())" in text


def test_checkpoints() -> None:
    source = SCRIPT + (
        "torch.save(model.state_dict(), 'a.pt')\n"
        "torch.save(model, 'b.pt')\n"
        "model.load_state_dict(torch.load('a.pt'))\n"
        "model.eval()\n"
        "print(model.head)\n"
    )
    assert body(source).endswith(
        "save_once(model.module.state_dict(), 'a.pt')\n"
        "save_once(model.module, 'b.pt')\n"
        "torch.distributed.barrier()\n"
        "model.module.load_state_dict(torch.load('a.pt', map_location=DEVICE))\n"
        "model.eval()\n"
        "print_once(model.module.head)\n"
        "torch.distributed.destroy_process_group()\n"
    )


def test_files_and_folders() -> None:
    source = SCRIPT.replace("import torch\n", "import os\nimport shutil\n\nimport torch\n", 1) + (
        "os.makedirs('out')\nshutil.copyfile('a', 'b')\nwith open('log', 'w') as log:\n    log.write('done')\n"
    )
    result = converted(source)
    assert "os.makedirs('out', exist_ok=True)\nif RANK == 0:\n    shutil.copyfile('a', 'b')\n" in result.text
    assert [finding.message for finding in left(result)] == ["every rank does this"]


def test_every_device_is_the_ranks_own() -> None:
    source = changed(('torch.device("cuda:0")', 'torch.device(f"cuda:{gpu}")'))
    assert 'device = torch.device("cuda")\n' in body(source)
    assert 'device = torch.device("cuda")\n' in body(SCRIPT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.to(device)", "model.cuda(gpu_ids[0], non_blocking=True)"),
        ("model.to(device)", "model.to(args.gpu_ids[0])"),
        ("model.to(device)", "model.to('cuda:' + str(gpu_ids[0]))"),
        ("model.to(device)", "model.to('cuda:{}'.format(gpu_ids[0]))"),
        ("model.to(device)", "nn.DataParallel(model, device_ids=[int(i) for i in '0,1'.split(',')]).cuda()"),
    ],
)
def test_indices_of_devices_from_a_string_are_dropped(old: str, new: str) -> None:
    result = converted(changed((old, new)))
    assert not left(result)
    assert "gpu_ids" not in result.text and "split" not in result.text


def test_batch_norm_is_reported() -> None:
    (finding,) = left(converted(SCRIPT + "norm = nn.BatchNorm2d(3)\n"))
    assert finding.subject == "BatchNorm2d"


def test_line_ends_and_other_text_are_preserved() -> None:
    source = SCRIPT.replace("\n", "\r\n")
    result = converted(source)
    assert result.text.count("\r\n") == result.text.count("\n")
    assert converted(result.text).text == result.text


def test_the_process_group_ends_where_the_script_exits() -> None:
    main = SCRIPT.replace("device =", "def main():\n  pass\n\ndevice =", 1)
    guarded = main + "if __name__ == '__main__':\n    raise SystemExit(main())\n"
    assert converted(guarded).text.endswith("destroy_process_group()\n")


def test_the_helpers_come_before_their_call_whatever_comes_before_torch() -> None:
    setting = 'os.environ["OMP_NUM_THREADS"] = "1"\n'
    source = SCRIPT.replace("import torch\n", f"import os\n{setting}import torch\n", 1)
    lines = converted(source.replace("Net\n\n", f"Net\n{setting}", 1)).text.splitlines()
    places = [
        lines.index(each) for each in (setting.strip(), "import torch", "from project import Data, Net")
    ]
    helper, call = lines.index("def start_process_group():"), lines.index("start_process_group()")
    assert places == sorted(places)
    assert places[-1] < helper < call < next(n for n, line in enumerate(lines) if line.startswith("device ="))
    assert lines.index(setting.strip(), places[-1]) < helper


def test_the_constant_comes_after_the_choice_of_the_devices() -> None:
    choice = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"'
    lines = convert_source(f"import os\n\nimport torch\n\n{choice}\nx = y.cuda()\n", "a.py").text.splitlines()
    assert lines.index(choice) < next(n for n, line in enumerate(lines) if line.startswith("DEVICE ="))
