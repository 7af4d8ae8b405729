"""The page of converted files against people's patches counts what it says, and marks outdated verdicts."""

from __future__ import annotations

from tools.migrate_gold.__main__ import side
from tools.migrate_gold.page import Row, page
from tools.migrate_gold.pairs import PAIRS, Verdict

BEFORE = 'x = x.cuda()  # to CUDA\nparser.add_argument("--no-cuda")\n'
AFTER = 'x = x.to(DEVICE)  # to CUDA\nparser.add_argument("--no-cuda")\n'


def test_a_patch_is_counted() -> None:
    assert side(BEFORE, AFTER) == (1, 1, True, 1)
    assert side(BEFORE, "x = (\n")[2:] == (False, 0)


def test_a_verdict_on_another_source_is_marked() -> None:
    patch = side(BEFORE, AFTER)
    current = Row(PAIRS[0], patch, patch, [], PAIRS[0].digest)
    assert "of an earlier version" not in page([current])
    assert "of an earlier version" in page([current._replace(digest="another")])


def test_every_pair_is_judged_and_named_by_full_commits() -> None:
    assert len({each.file for each in PAIRS}) == len(PAIRS)
    for each in PAIRS:
        assert isinstance(each.verdict, Verdict)
        assert each.reason
        assert len(each.before) == len(each.after) == 40
        assert len(each.digest) == 12
