"""``torch.profiler``: activities of the accelerator, and the names of its columns."""

import re

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.arguments import keyword
from isthmus.migrate.convert.rule import Rule

_ACTIVITY = "torch.profiler.ProfilerActivity"
_COLUMN = re.compile(r"(self_)?cuda_(time_total|time|memory_usage)")


class Profiler(Rule):
    """Profiled activities, and sorting of results."""

    code = "IM124"
    name = "profiler"
    summary = "profiles all supported activities; columns have their device-neutral names"
    before = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
    after = "profile(activities=torch.profiler.supported_activities())"
    words = ("ProfilerActivity.CUDA", "cuda_time", "cuda_memory_usage", "use_cuda")

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.BaseExpression:
        """Replace a list of the CPU's and CUDA's activities by all supported ones."""
        names = {source for element in original_node.elements for source in self._activity(element.value)}
        if names != {"CPU", "CUDA"}:
            return updated_node
        self.note(original_node, "the activities are those that the machine supports")
        for element in original_node.elements:
            self.replaced(element.value)
        return self.expression("torch.profiler.supported_activities()")

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        """Replace columns such as ``sort_by="cuda_time_total"``."""
        text = original_node.raw_value
        if not _COLUMN.fullmatch(text):
            return updated_node
        self.note(original_node, f"the column `{text}` is `{text.replace('cuda', 'device')}`")
        return updated_node.with_changes(value=updated_node.value.replace("cuda", "device"))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        """``event.cuda_time_total``."""
        name = original_node.attr.value
        if not _COLUMN.fullmatch(name):
            return updated_node
        self.note(original_node, f"`{name}` is `{name.replace('cuda', 'device')}`")
        return updated_node.with_changes(attr=cst.Name(name.replace("cuda", "device")))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """``torch.autograd.profiler.profile(use_cuda=True)``."""
        if "torch.autograd.profiler.profile" not in self.qualified(original_node.func):
            return updated_node
        arguments = [self._device(argument) for argument in updated_node.args]
        if all(new is old for new, old in zip(arguments, updated_node.args, strict=True)):
            return updated_node
        self.note(original_node, "profiles the device in use")
        return updated_node.with_changes(args=arguments)

    def _device(self, argument: cst.Arg) -> cst.Arg:
        if not m.matches(argument, m.Arg(keyword=m.Name("use_cuda"))):
            return argument
        if m.matches(argument.value, m.Name("True")):
            template = "{type} if torch.accelerator.is_available() else None"
            return keyword("use_device", self.expression(template)).with_changes(comma=argument.comma)
        template = "{type} if {asked} and torch.accelerator.is_available() else None"
        value = self.expression(template, asked=argument.value)
        return keyword("use_device", value).with_changes(comma=argument.comma)

    def _activity(self, original: cst.BaseExpression) -> list[str]:
        names = self.qualified(original) if isinstance(original, cst.Attribute) else ()
        known = [name.rpartition(".") for name in names]
        return [name for owner, _, name in known if owner == _ACTIVITY] or [""]
