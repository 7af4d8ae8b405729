"""Random number generators of the device."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.arguments import find
from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.convert.strings import is_cuda
from isthmus.migrate.source.cuda_names import Guard

_FORK_PARAMETERS = ("devices", "enabled", "_caller", "_devices_kw", "device_type")
# Lists of devices that are empty without an accelerator.
_NONE_ON_CPU = m.Name("None") | m.List([]) | m.Tuple([]) | m.Call(m.Name("range")) | m.IfExp()


class Random(FunctionRule):
    """Seeds and states of the random number generators."""

    code = "IM117"
    name = "random"
    summary = "seeds the generators of the accelerator in use"
    before = "torch.cuda.manual_seed_all(0)"
    after = "if torch.accelerator.is_available():\n    torch.get_device_module(DEVICE).manual_seed_all(0)"
    words = ("seed", "rng_state", "default_generators", "fork_rng")

    def visit_Call(self, node: cst.Call) -> bool | None:
        """Claim the device type of the forked generators from the rule of strings."""
        type_ = self._type_to_fork(node)
        if type_ is not None:
            self.claim(type_.value)
        return super().visit_Call(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Convert ``torch.random.fork_rng``, which always forks the CPU's generator."""
        if self._forks(original_node):
            return self._fork(original_node, updated_node)
        return super().leave_Call(original_node, updated_node)

    def _forks(self, call: cst.Call) -> bool:
        known = "torch.random.fork_rng" in self.qualified(call.func)
        return known and self.needs_guard(call, Guard.ACCELERATOR)

    def _type_to_fork(self, call: cst.Call) -> cst.Arg | None:
        """Return the argument ``"cuda"``, which is dropped: the accelerator's type is the default."""
        type_ = find(call, _FORK_PARAMETERS, "device_type") if self._forks(call) else None
        return type_ if type_ is not None and is_cuda(type_.value) else None

    def _fork(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        type_, devices = self._type_to_fork(original), find(original, _FORK_PARAMETERS, "devices")
        is_given = devices is not None and not m.matches(devices.value, _NONE_ON_CPU)
        if type_ is None and not is_given:
            return updated
        arguments = [
            self._none_on_cpu(original, now) if is_given and was is devices else now
            for was, now in zip(original.args, updated.args, strict=True)
            if was is not type_
        ]
        self.note(original, "forks the generators of the accelerator, if there is one")
        if arguments:
            arguments[-1] = arguments[-1].with_changes(comma=updated.args[-1].comma)
        return updated.with_changes(args=arguments)

    def _none_on_cpu(self, original: cst.Call, devices: cst.Arg) -> cst.Arg:
        there = self.test(original, Guard.ACCELERATOR)
        value = self.expression("{devices} if {there} else []", devices=devices.value, there=there)
        return devices.with_changes(value=value)
