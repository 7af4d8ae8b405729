"""Automatic mixed precision: ``torch.cuda.amp`` becomes ``torch.amp``, which takes the type of the device."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.arguments import find, keyword, parenthesized
from isthmus.migrate.convert.functions import FunctionRule, source_of
from isthmus.migrate.convert.rules.amp_imports import moved_names
from isthmus.migrate.source.cuda_names import NAMES, canonical
from isthmus.migrate.source.findings import Severity

_AUTOCAST = "torch.cuda.amp.autocast"
_SCALER = "torch.cuda.amp.GradScaler"
_GENERIC = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_PARAMETERS = ("enabled", "dtype", "cache_enabled")  # of torch.cuda.amp.autocast
_GENERIC_PARAMETERS = ("device_type", "dtype", "enabled", "cache_enabled")
_SCALER_PARAMETERS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
_FUNCTIONS = ("torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd")
_GET_DTYPE = "torch.get_autocast_gpu_dtype"
_SET_DTYPE = "torch.set_autocast_gpu_dtype"
_RENAMED = {_GET_DTYPE: "torch.get_autocast_dtype", _SET_DTYPE: "torch.set_autocast_dtype"}
_IS_ENABLED = "torch.is_autocast_enabled"
_GENERIC_SCALERS = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")


class Amp(FunctionRule):
    """Autocast, gradient scaling, and autograd functions under autocast.

    Autocast for CUDA does nothing without CUDA; the converted one does nothing on the CPU.
    """

    code = "IM118"
    name = "amp"
    summary = "mixed precision of the device in use; off on the CPU, as before"
    before = "with torch.cuda.amp.autocast():"
    after = 'with torch.amp.autocast(DEVICE.type, enabled=DEVICE.type != "cpu"):'
    words = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
    mention = ""

    def visit_Module(self, node: cst.Module) -> None:
        """Find the imports that move to ``torch.amp``; the names that they bind stay."""
        self._moved = moved_names(node, self.context.source)

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the device type from the rule of strings, and the called name from this rule."""
        if self._name(node.func):
            self.claim(node.func)
        type_ = self._cuda_type(node)
        if type_ is not None:
            self.claim(type_.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Pass the device type to a call."""
        name = self._name(original_node.func)
        if name == _AUTOCAST:
            return self._autocast(original_node, updated_node, _PARAMETERS)
        if name in _GENERIC and self._cuda_type(original_node) is not None:
            return self._autocast(original_node, updated_node, _GENERIC_PARAMETERS)
        if name in _FUNCTIONS:
            arguments = [*updated_node.args, keyword("device_type", self.device_type())]
            return self._call(original_node, updated_node, name, arguments)
        if name == _SCALER or self._is_cuda_scaler(original_node):
            return self._scaler(original_node, updated_node, name)
        if name in _RENAMED or (name == _IS_ENABLED and not original_node.args):
            return self._state(original_node, updated_node, name)
        return updated_node

    def leave_Decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> cst.Decorator:
        """Make a call of ``@custom_fwd``."""
        name = self._name(original_node.decorator)
        if name not in _FUNCTIONS:
            return updated_node
        self.note(original_node, f"`{name}` becomes `{_new(name)}`, for the type of the device")
        function = self._function(original_node.decorator, name)
        call = cst.Call(function, [keyword("device_type", self.device_type())])
        return updated_node.with_changes(decorator=call)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """``torch.cuda.amp.GradScaler`` as a type, ``torch.cuda.amp.autocast`` as a value."""
        return self._reference(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """The same, imported."""
        return self._reference(original_node, updated_node)

    def _reference(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression:
        """Replace a name that is not called: a type by the class, a value by a callable with the device type."""
        name = self._name(original)
        parent = self.parent(original)
        if name not in (_AUTOCAST, _SCALER) or isinstance(parent, cst.Decorator):
            return updated
        function = self._function(original, name)
        if name == _AUTOCAST and not isinstance(parent, cst.Annotation | cst.Arg | cst.Attribute):
            self.note(original, f"`{name}` becomes `{_new(name)}`, for the type of the device")
            return self.expression("functools.partial({function}, {type})", function=function)
        if function is not original:
            self.note(original, f"`{name}` becomes `{_new(name)}`")
        return function

    def _name(self, original: cst.CSTNode) -> str:
        if not isinstance(original, cst.Name | cst.Attribute):
            return ""
        names = map(canonical, self.qualified(original))
        return next((name for name in names if "autocast" in name or ".amp." in name), "")

    def _cuda_type(self, original: cst.Call) -> cst.Arg | None:
        """The argument that is ``"cuda"`` of a call of ``torch.autocast`` or ``torch.amp.GradScaler``."""
        name = self._name(original.func)
        if name in _GENERIC_SCALERS:
            argument = find(original, ("device",), "device")
        elif name in _GENERIC:
            argument = find(original, _GENERIC_PARAMETERS, "device_type")
        else:
            return None
        is_cuda = argument is not None and source_of(argument.value) in {'"cuda"', "'cuda'"}
        return argument if is_cuda else None

    def _autocast(
        self, original: cst.Call, updated: cst.Call, parameters: tuple[str, ...]
    ) -> cst.BaseExpression:
        name = self._name(original.func)
        if any(argument.star == "*" for argument in updated.args):
            message = "has unknown arguments, and torch.amp takes them in another order"
            self.left(original, name, message, "write them explicitly, and convert again")
            return updated
        enabled = find(updated, parameters, "enabled")
        arguments = [cst.Arg(self.device_type())]
        for position, argument in enumerate(updated.args):
            if argument.star:
                arguments.append(argument.with_changes(comma=cst.MaybeSentinel.DEFAULT))
                continue
            parameter = argument.keyword.value if argument.keyword else parameters[position]
            if argument is not enabled and parameter != "device_type":
                arguments.append(keyword(parameter, argument.value))
        condition = self._enabled(original, enabled)
        if enabled is None and any(argument.star for argument in arguments):
            self._may_be_on(original, name)
        elif condition is not None:
            arguments.append(keyword("enabled", condition))
        return self._call(original, updated, name, arguments)

    def _may_be_on(self, original: cst.Call, name: str) -> None:
        """Report a call that may or may not pass ``enabled``."""
        if not self.context.target:
            message = "has unknown arguments, so it may be enabled on the CPU"
            advice = 'pass enabled=False if DEVICE.type == "cpu"'
            self.left(original, name, message, advice, Severity.REVIEW)

    def _is_cuda_scaler(self, original: cst.Call) -> bool:
        """Whether a call creates a scaler of ``torch.amp`` for CUDA, its default device."""
        if self._name(original.func) not in _GENERIC_SCALERS:
            return False
        return not original.args or self._cuda_type(original) is not None

    def _scaler(self, original: cst.Call, updated: cst.Call, name: str) -> cst.BaseExpression:
        """Make a scaler for the device in use, disabled on the CPU, as CUDA's is without CUDA."""
        parameters = _SCALER_PARAMETERS if name == _SCALER else ("device", *_SCALER_PARAMETERS)
        enabled, type_ = find(updated, parameters, "enabled"), self._cuda_type(original)
        rest = [now for now, was in zip(updated.args, original.args, strict=True) if was is not type_]
        arguments = [cst.Arg(self.device_type()), *rest]
        condition = self._enabled(original, enabled)
        if any(argument.star for argument in rest):
            self._may_be_on(original, name)
        elif enabled is None and condition is not None:
            arguments.append(keyword("enabled", condition))
        elif enabled is not None and condition is not None:
            arguments[arguments.index(enabled)] = enabled.with_changes(value=condition)
        return self._call(original, updated, name, arguments)

    def _state(self, original: cst.Call, updated: cst.Call, name: str) -> cst.BaseExpression:
        """Make a query of the autocast state; on the CPU it gives CUDA's default."""
        arguments = [cst.Arg(self.device_type()), *updated.args]
        call = self._call(original, updated, name, arguments)
        if name == _SET_DTYPE:
            return self.guarded(original, call, NAMES[name])
        if self.context.target:
            return call
        quote = self.quote(original)
        there = self.expression(f"{{type}} != {quote}cpu{quote}")
        template = "{call} if {there} else torch.float16" if name == _GET_DTYPE else "{call} and {there}"
        return self.fitted(original, self.expression(template, call=call, there=there))

    def _enabled(self, original: cst.Call, argument: cst.Arg | None) -> cst.BaseExpression | None:
        """Make the condition of autocast: the source's, and an accelerator."""
        if self.context.target:
            return argument.value if argument else None
        quote = self.quote(original)
        accelerator = self.expression(f"{{type}} != {quote}cpu{quote}")
        if argument is None or m.matches(argument.value, m.Name("True")):
            return accelerator
        if m.matches(argument.value, m.Name("False")):
            return argument.value
        return self.expression("{asked} and {there}", asked=parenthesized(argument.value), there=accelerator)

    def _call(
        self, original: cst.Call, updated: cst.Call, name: str, arguments: list[cst.Arg]
    ) -> cst.BaseExpression:
        self.note(original, f"`{name}` becomes `{_new(name)}`, for the type of the device")
        return updated.with_changes(func=self._function(original.func, name), args=arguments)

    def _function(self, original: cst.BaseExpression, name: str) -> cst.BaseExpression:
        """Return the function under its new name; under the old one if the import moved."""
        root = original.value if isinstance(original, cst.Attribute) else original
        if name == _new(name) or (isinstance(root, cst.Name) and root.value in self._moved):
            return original
        self.replaced(original)
        return self.expression(_new(name))


def _new(name: str) -> str:
    return _RENAMED.get(name, name).replace("torch.cuda.amp.", "torch.amp.")
