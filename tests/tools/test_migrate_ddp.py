"""The page of public scripts on two ranks counts what it says."""

from __future__ import annotations

from isthmus_migrate.convert.engine import convert_source
from tools.migrate_ddp.__main__ import metrics, refusal
from tools.migrate_ddp.page import Row, outcome, page
from tools.migrate_ddp.scripts import SCRIPTS

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.DataParallel(torch.nn.Linear(3, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 3), batch_size=4):
    loss = model(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_what_the_conversion_says_is_in_the_row() -> None:
    result = convert_source(SCRIPT, "train.py", options=["ddp"])
    assert list(metrics(result)) == ["loss: averaged over the ranks"] and refusal(result) == ""
    refused = convert_source(SCRIPT.replace("loss.item()", "x.max().item()"), "train.py", options=["ddp"])
    assert refusal(refused) == "not converted: line 10: unclear how to reduce this number over ranks: x.max()"
    assert refusal(convert_source("print 1", "a.py", options=["ddp"])).startswith("not converted: line 1")


def test_the_page_counts_what_it_says() -> None:
    equal = Row(SCRIPTS[0], 3, ["loss: averaged over the ranks"], "", 4, 1e-7, 2e-6, 0.0, 0.0, True)
    rows = [
        equal,
        equal._replace(noise=3e-4, parameters=1e-4),
        equal._replace(same=False, losses=0.1),
        equal._replace(problem="not converted: line 3: why"),
        equal._replace(problem="the original on the CPU: ended with status 1"),
    ]
    assert [outcome(row).partition(":")[0] for row in rows[:3]] == [
        "equal",
        "equal within rounding noise (0.0003)",
        "DIFFERENT",
    ]
    text = page(rows)
    assert (
        "5 scripts: 3 compared, 2 of them equal, 1 within 2e-05; 1 not converted; 1 failing unmodified"
        in text
    )
    assert "not converted: line 3: why" in text and text.count("loss: averaged over the ranks") == 3


def test_scripts_are_named_by_full_commits() -> None:
    assert len({(each.repository, each.file) for each in SCRIPTS}) == len(SCRIPTS)
    assert all(len(each.revision) == 40 for each in SCRIPTS)
