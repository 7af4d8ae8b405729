"""The patch registry: applying, refusing and undoing patches."""

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
