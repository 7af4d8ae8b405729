"""The patch registry: applying, refusing and undoing patches."""

import importlib
import re

import pytest
import torch

from isthmus_common import ctype, patches


class Target:
    value = 1

    def method(self, first, second=2):
        return first + second

    @staticmethod
    def static():
        return "static"


class Child(Target):
    pass


@pytest.fixture
def scope():
    with patches.Scope("test") as scope:
        yield scope


def test_replace_and_undo_restore_the_same_object(scope):
    before = dict(vars(Target))
    scope.replace(f"{__name__}.Target.method", lambda original: lambda *a: -original(*a), "negate")
    scope.replace(f"{__name__}.Target.static", lambda original: staticmethod(lambda: "other"), "other")
    assert Target().method(1, 2) == -3 and Target.static() == "other"
    scope.undo()
    assert dict(vars(Target)) == before


def test_an_inherited_attribute_is_deleted_again(scope):
    scope.replace(f"{__name__}.Child.value", lambda original: original + 1, "shadow")
    assert (Child.value, Target.value) == (2, 1)
    scope.undo()
    assert "value" not in vars(Child)


def test_an_absent_attribute_is_created_and_deleted(scope):
    scope.replace(f"{__name__}.Target.fresh", lambda original: original is None, "new")
    assert Target.fresh is True
    scope.undo()
    assert not hasattr(Target, "fresh")


def test_patches_are_undone_newest_first(scope):
    for number in (10, 20):
        scope.replace(f"{__name__}.Target.value", lambda original, n=number: original + n, "add")
    assert Target.value == 31
    scope.undo()
    assert Target.value == 1


def test_active_lists_target_reason_and_feature(scope):
    scope.replace(f"{__name__}.Target.value", lambda original: 5, "five")
    assert [(p.target, p.reason, p.feature) for p in patches.active("test")] == [
        (f"{__name__}.Target.value", "five", "test")
    ]
    scope.undo()
    assert patches.active("test") == []


def test_an_exception_inside_the_scope_undoes():
    with pytest.raises(KeyError), patches.Scope("test") as scope:
        scope.replace(f"{__name__}.Target.value", lambda original: 5, "five")
        raise KeyError
    assert Target.value == 1


def test_a_changed_signature_is_refused_and_named(scope):
    with pytest.raises(
        patches.PatchError, match=r"parameters are \(self, first, second\), expected \(self, other\)"
    ):
        scope.replace(f"{__name__}.Target.method", lambda o: o, "x", expects=("self", "other"))
    assert scope.patches == []


def test_an_absent_owner_is_refused_and_named(scope):
    with pytest.raises(patches.PatchError, match=r"torch\.no_such does not exist"):
        scope.replace("torch.no_such.thing", lambda o: o, "x")


def test_replace_new_keeps_the_type_and_its_errors():
    kind, original = torch.device, vars(torch.device)["__new__"]
    undo = ctype.replace_new(
        kind, lambda new: lambda cls, *a, **k: new(cls, *a, **k) if a or k else new(cls, "cpu")
    )
    try:
        assert kind() == kind("cpu") and type(kind()) is kind
        assert kind(type="meta") == kind("meta") and kind("cpu", 0).index == 0
        with pytest.raises(RuntimeError, match="nonsense"):
            kind("nonsense")
        with pytest.raises(TypeError):
            kind(1.5)
    finally:
        undo()
    assert vars(kind)["__new__"] is original
    with pytest.raises(TypeError):
        kind()


def test_replace_new_survives_many_calls():
    undo = ctype.replace_new(torch.device, lambda new: new)
    try:
        made = [torch.device("cpu", index) for index in range(100) for _ in range(100)]
    finally:
        undo()
    assert {device.index for device in made} == set(range(100))


def test_replace_new_refuses_a_type_without_its_own_constructor():
    with pytest.raises(RuntimeError, match="Child has no constructor of its own"):
        ctype.replace_new(Child, lambda new: new)


@pytest.fixture
def no_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_skipped", [])


@pytest.mark.usefixtures("no_skipped")
@pytest.mark.parametrize(
    ("target", "expects", "reason"),
    [
        (
            "method",
            ("self", "other"),
            r"its parameters are \(self, first, second\), expected \(self, other\)",
        ),
        ("gone.method", (), "gone does not exist in this version"),
        ("gone", (), "it does not exist in this version"),
    ],
)
def test_a_feature_whose_target_moved_is_left_out_with_one_line(
    scope, capsys: pytest.CaptureFixture[str], target: str, expects: tuple[str, ...], reason: str
):
    def install():
        scope.replace(f"{__name__}.Target.value", lambda original: original + 1, "a part that fits")
        scope.replace(
            f"{__name__}.Target.{target}", lambda original: original.copy(), "moved", expects=expects
        )

    scope.replace(f"{__name__}.Target.static", lambda original: original, "of before")
    for _ in range(2):  # said once
        patches.attempt(install, "counting")
    assert Target.value == 1 and len(scope.patches) == len(patches.active("test")) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert re.match(f"isthmus: counting will not work: cannot patch {__name__}.*{reason}", said)
    assert [each.loss for each in patches.skipped()] == ["counting"]


@pytest.mark.usefixtures("no_skipped")
def test_deferred_patches_are_left_out_too(scope, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch):
    (tmp_path / "patched_later.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def install():
        scope.when_imported(
            "patched_later", lambda: scope.replace("patched_later.gone.name", str, "moved"), "waits for it"
        )

    patches.attempt(install, "counting")
    assert not patches.skipped()
    importlib.import_module("patched_later")
    assert "counting will not work: cannot patch patched_later.gone.name" in capsys.readouterr().err


@pytest.mark.usefixtures("no_skipped")
def test_a_feature_that_fits_is_installed_and_other_errors_are_raised(
    scope, capsys: pytest.CaptureFixture[str]
):
    patches.attempt(lambda: scope.replace(f"{__name__}.Target.value", lambda _: 5, "five"), "counting")
    assert Target.value == 5 and not patches.skipped() and not capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        patches.attempt(
            lambda: scope.replace(f"{__name__}.Target.value", lambda _: 1 // 0, "none"), "counting"
        )
