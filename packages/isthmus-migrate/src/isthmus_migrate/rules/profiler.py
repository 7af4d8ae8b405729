"""``torch.profiler``: activities of the accelerator, and the names of its columns."""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import TERNARY, Draft, operand
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

ACTIVITIES = frozenset({"torch.profiler.ProfilerActivity", "torch.autograd.ProfilerActivity"})
_COLUMN = re.compile(r"(self_)?cuda_(time_total|time|memory_usage)")
_PROFILE = frozenset({"torch.autograd.profiler.profile", "torch.autograd.profiler_legacy.profile"})
_THERE = "torch.accelerator.is_available()"
# Texts by which a source obtains the profiler's events.
_EVENTS = ("key_averages(", ".events()", "FunctionEvent")


class Profiler(Rule):
    """Profiled activities, and sorting of results."""

    code = "IM124"
    name = "profiler"
    summary = "profiles all supported activities; columns have their device-neutral names"
    before = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
    after = "profile(activities=torch.profiler.supported_activities())"
    words = ("ProfilerActivity", "cuda_time", "cuda_memory_usage", "use_cuda")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find ``ProfilerActivity.CUDA``, ``sort_by="cuda_time_total"``, ``event.cuda_time``, ``use_cuda=True``."""
        for node in module.of(ast.Attribute):
            if self._activity(module, node) == "CUDA":
                yield self._cuda_activity(module, node)
            elif _COLUMN.fullmatch(node.attr):
                yield self._attribute(module, node)
        for constant in module.of(ast.Constant):
            if _COLUMN.fullmatch(text(constant)):
                yield self._column(module, constant)
        for call in module.of(ast.Call):
            if module.names.qualified(call.func) in _PROFILE:
                yield from (self._use_cuda(module, each) for each in call.keywords if each.arg == "use_cuda")

    def _activity(self, module: Module, node: ast.expr) -> str:
        owner, _, name = (module.names.qualified(node) or "").rpartition(".")
        return name if owner in ACTIVITIES else ""

    def _cuda_activity(self, module: Module, node: ast.Attribute) -> Finding:
        """Return the finding of the activity: converted in a list with the CPU's, whose comments stay."""
        subject, said = "ProfilerActivity.CUDA", "is an activity of CUDA"
        new = "torch.profiler.supported_activities()"
        listed = module.parents[node]
        elements = listed.elts if isinstance(listed, ast.List | ast.Tuple | ast.Set) else []
        activities = {self._activity(module, each): each for each in elements}
        if activities.keys() != {"CPU", "CUDA"}:
            return self.undecided(module, node, subject, said, f"write {new}")
        assert isinstance(listed, ast.expr)
        draft = Draft(module)
        if "#" in module.code(listed):
            draft.replace(node, f"*({new} - {{{{cpu}}}})", cpu=module.code(activities["CPU"]))
        else:
            draft.replace(listed, new)
        return self.automatic_change(node, subject, said, f"becomes {new}", draft)

    def _attribute(self, module: Module, node: ast.Attribute) -> Finding:
        """Return the finding of ``event.cuda_time``, which may be an attribute of the project."""
        if (
            not isinstance(node.ctx, ast.Load)
            or node.attr in _own_attributes(module)
            or not module.mentions(*_EVENTS)
        ):
            return self._keep_name(module, node, node.attr)
        end = module.end(node)
        draft = Draft(module).swap(node, end - len(node.attr), end, _neutral_name(node.attr))
        return self.automatic_change(
            node, node.attr, "is of CUDA", f"becomes {_neutral_name(node.attr)}", draft
        )

    def _column(self, module: Module, node: ast.Constant) -> Finding:
        """Return the finding of a column's name, the key to sort a table by."""
        name, parent = text(node), module.parents[node]
        code = module.code(node)
        if not (isinstance(parent, ast.keyword) and parent.arg == "sort_by") or code.count(name) != 1:
            return self._keep_name(module, node, name)
        draft = Draft(module).replace(node, "{new}", new=code.replace(name, _neutral_name(name)))
        return self.automatic_change(node, name, "is of CUDA", f"becomes {_neutral_name(name)}", draft)

    def _keep_name(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Return the finding of a name that PyTorch's profiler accepts on every accelerator, or a project's own."""
        said, advice = "is CUDA's name of a column", "stays: the profiler of any accelerator accepts it"
        return self.already_portable(module, node, name, said, advice)

    def _use_cuda(self, module: Module, given: ast.keyword) -> Finding:
        """Return the finding of ``torch.autograd.profiler.profile(use_cuda=True)``."""
        value = given.value
        if isinstance(value, ast.Constant) and not value.value:
            return self.already_portable(module, given, "use_cuda", "is False", "stays")
        draft = Draft(module).swap(
            given, module.start(given), module.start(given) + len("use_cuda"), "use_device"
        )
        if isinstance(value, ast.Constant):
            draft.replace(value, f"{{type}} if {_THERE} else None", TERNARY)
        else:
            opening, closing = operand(value)
            draft.surround(value, f"{{type}} if {opening}", f"{closing} and {_THERE} else None", TERNARY)
        return self.automatic_change(given, "use_cuda", "is of CUDA", "becomes use_device", draft)


def _neutral_name(name: str) -> str:
    return name.replace("cuda", "device")


def _own_attributes(module: Module) -> set[str]:
    """Return the attributes that the module itself defines."""
    stored = {each.attr for each in module.of(ast.Attribute) if isinstance(each.ctx, ast.Store)}
    defined = {each.name for each in module.of(ast.FunctionDef)}
    named = {each.id for each in module.of(ast.Name) if isinstance(each.ctx, ast.Store)}
    return stored | defined | named
