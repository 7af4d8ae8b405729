"""Convert ``apex.amp`` to ``torch.amp``, each script completely or not at all.

Opt level O1 is autocast with a GradScaler. O2, a float16 model with float32 master weights, becomes the same: weights
stay in float32, and each operation casts. O0 is both, disabled. O3, a plain float16 model, has no counterpart.
"""

import ast
from typing import NamedTuple

from isthmus_migrate.rules.scripts.edits import Change, Edits
from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program

_LEVELS = ("O0", "O1", "O2")
_OPTIONS = {"opt_level", "loss_scale", "verbosity", "keep_batchnorm_fp32"}
_CLIPS = (
    "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_",
    "torch.nn.utils.clip_grad_norm",
)


class Amp(NamedTuple):
    """A call of ``amp.initialize``.

    Attributes:
        statement: the statement that contains it.
        model: source of the model argument.
        optimizer: source of the optimizer argument.
        scaler: name of the GradScaler, visible where the optimizer is.
        enabled: argument of the GradScaler; "" if always enabled.
    """

    statement: ast.stmt
    model: str
    optimizer: str
    scaler: str
    enabled: str


def convert(source: str, torch: str, device: str) -> list[Change]:
    """Return the changes of a script to torch.amp; none if it does not use apex.amp.

    Args:
        source: source of the script.
        torch: name of PyTorch in the script.
        device: name of the constant of the device.

    Raises:
        NotRecognised: it uses apex.amp in an unsupported way.
    """
    program = Program(source)
    uses = [node for node in program.nodes if isinstance(node, ast.Attribute) and _amp(program, node)]
    if not uses:
        return []
    edits = Edits(source)
    writer = _Writer(program, edits, torch, device)
    writer.convert()
    left = [node for node in uses if node not in writer.done]
    if left:
        raise NotRecognised(left[0].lineno, f"amp.{left[0].attr} has no counterpart in torch.amp")
    return edits.changes()


def _amp(program: Program, node: ast.expr) -> str:
    """Return ``"initialize"`` for ``amp.initialize``; "" for anything else."""
    name = program.qualified(node)
    return name.removeprefix("apex.amp.") if name.startswith("apex.amp.") else ""


class _Writer:
    def __init__(self, program: Program, edits: Edits, torch: str, device: str) -> None:
        self._program = program
        self._edits = edits
        self._torch = torch
        self._type = f"{device}.type"
        self.done: set[ast.AST] = set()

    def convert(self) -> None:
        amp = self._initialize()
        self._convert_scaled(amp)
        self._steps(amp)
        self._states(amp)

    def _calls(self, name: str) -> list[ast.Call]:
        return [call for call in self._program.calls if _amp(self._program, call.func) == name]

    def _initialize(self) -> Amp:
        calls = self._calls("initialize")
        if len(calls) != 1:
            line = calls[1].lineno if calls else 1
            raise NotRecognised(line, "amp.initialize is not called exactly once in this file")
        call = calls[0]
        self._check_options(call)
        statement = self._program.statement(call)
        model, optimizer = self._pair(statement, call)
        owner = optimizer.rpartition(".")[0]
        scaler = f"{owner}.scaler" if owner else "scaler"
        amp = Amp(statement, model, optimizer, scaler, self._enabled(call))
        self._check_free(amp)
        new = f"{scaler} = {self._torch}.amp.GradScaler({self._type}{amp.enabled})"
        self._edits.replace(statement, new, "amp.initialize becomes a GradScaler")
        self.done.add(call.func)
        return amp

    def _pair(self, statement: ast.stmt, call: ast.Call) -> tuple[str, str]:
        """Return model and optimizer of ``model, optimizer = amp.initialize(model, optimizer)``."""
        targets = statement.targets[0] if isinstance(statement, ast.Assign) else None
        pair = [self._edits.text(each) for each in targets.elts] if isinstance(targets, ast.Tuple) else []
        if len(pair) != 2 or pair != [self._edits.text(each) for each in call.args[:2]]:
            raise NotRecognised(call.lineno, "amp.initialize is not given one model and one optimizer")
        if isinstance(self._program.parents[statement], ast.If | ast.Try):
            raise NotRecognised(call.lineno, "amp.initialize runs under a condition")
        return pair[0], pair[1]

    @staticmethod
    def _check_options(call: ast.Call) -> None:
        given = {each.arg: each.value for each in call.keywords}
        unknown = sorted(str(each) for each in given.keys() - _OPTIONS)
        if unknown or len(call.args) > 3:
            raise NotRecognised(
                call.lineno, f"amp.initialize is given {(unknown or ['a fourth argument'])[0]}"
            )
        if "loss_scale" in given and ast.unparse(given["loss_scale"]) not in ("'dynamic'", "None"):
            raise NotRecognised(call.lineno, "the loss scale may be fixed; GradScaler's is dynamic")

    def _enabled(self, call: ast.Call) -> str:
        """Return the argument ``enabled`` for the opt level, which may be known only at run time."""
        level = next((each.value for each in call.keywords if each.arg == "opt_level"), ast.Constant("O1"))
        level = call.args[2] if len(call.args) > 2 else level
        if not isinstance(level, ast.Constant):
            return f', enabled={self._edits.text(level)} != "O0"'
        if level.value not in _LEVELS:
            raise NotRecognised(call.lineno, f"opt level {level.value!r} has no counterpart in torch.amp")
        return ", enabled=False" if level.value == "O0" else ""

    def _check_free(self, amp: Amp) -> None:
        name = amp.scaler.rpartition(".")[2]
        for node in self._program.nodes:
            if name in (getattr(node, "id", ""), getattr(node, "attr", "")):
                raise NotRecognised(getattr(node, "lineno", 1), "the script defines a scaler itself")

    def _convert_scaled(self, amp: Amp) -> None:
        """``with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()``."""
        for call in self._calls("scale_loss"):
            statement = self._program.statement(call)
            plain = isinstance(statement, ast.With) and len(statement.items) == 1
            if not plain or len(call.args) != 2 or call.keywords:
                raise NotRecognised(call.lineno, "amp.scale_loss is not used in a plain with statement")
            self._check_visible(amp, call)
            loss, optimizer = call.args
            if self._edits.text(optimizer) != amp.optimizer:
                raise NotRecognised(call.lineno, "amp.scale_loss is given another optimizer")
            assert isinstance(statement, ast.With)
            backward = self._backward_call(statement)
            new = f"{amp.scaler}.scale({self._edits.text(loss)}){backward}"
            self._edits.replace(statement, new, "amp.scale_loss becomes GradScaler.scale")
            self._autocast(amp, statement, self._edits.text(loss))
            self.done.add(call.func)

    def _backward_call(self, statement: ast.With) -> str:
        """``.backward(retain_graph=True)`` of the with statement's only line."""
        scaled = statement.items[0].optional_vars
        only = statement.body[0] if len(statement.body) == 1 else None
        call = only.value if isinstance(only, ast.Expr) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(scaled, ast.Name)
        ):
            receiver = call.func.value
            if isinstance(receiver, ast.Name) and receiver.id == scaled.id and call.func.attr == "backward":
                return self._edits.text(call)[len(self._edits.text(receiver)) :]
        raise NotRecognised(statement.lineno, "more than backward() is done with the scaled loss")

    def _autocast(self, amp: Amp, statement: ast.stmt, loss: str) -> None:
        """Put the statements that run the model and compute the loss under autocast."""
        block = self._program.block(statement)
        before = block[: block.index(statement)]
        runs = [position for position, each in enumerate(before) if self._runs(each, amp.model)]
        makes = [position for position, each in enumerate(before) if self._makes(each, loss)]
        if not runs or not makes or max(makes) < min(runs):
            raise NotRecognised(
                statement.lineno, "the model does not run in the same block as amp.scale_loss"
            )
        statements = before[min(runs) : max(makes) + 1]
        dtype = f"{self._torch}.float16"
        enabled = f", enabled={amp.scaler}.is_enabled()" if amp.enabled else ""
        line = f"with {self._torch}.autocast({self._type}, dtype={dtype}{enabled}):"
        self._edits.nest(statements, line, "the model runs under autocast")

    def _runs(self, statement: ast.stmt, model: str) -> bool:
        calls = (each for each in ast.walk(statement) if isinstance(each, ast.Call))
        return any(self._edits.text(each.func) == model for each in calls)

    def _makes(self, statement: ast.stmt, loss: str) -> bool:
        nodes = (each for each in ast.walk(statement) if isinstance(each, ast.Name | ast.Attribute))
        return any(isinstance(each.ctx, ast.Store) and self._edits.text(each) == loss for each in nodes)

    def _steps(self, amp: Amp) -> None:
        """``optimizer.step()``, and gradients that are clipped before it."""
        steps = [
            call
            for call in self._program.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "step"
            and self._edits.text(call.func.value) == amp.optimizer
        ]
        for call in steps:
            statement = self._program.statement(call)
            if (
                call.args
                or call.keywords
                or not (isinstance(statement, ast.Expr) and statement.value is call)
            ):
                raise NotRecognised(call.lineno, "the optimizer's step has arguments or a result")
            self._check_visible(amp, call)
            self._edits.replace(call, f"{amp.scaler}.step({amp.optimizer})", "the scaler steps the optimizer")
            self._edits.insert_lines_after(statement, f"{amp.scaler}.update()", "")
        if not steps:
            raise NotRecognised(amp.statement.lineno, "the optimizer does not step in this file")
        self._clips(amp)

    def _clips(self, amp: Amp) -> None:
        """Clipping needs gradients that are not scaled."""
        unscaled: list[list[ast.stmt]] = []
        for call in self._program.calls:
            if self._program.qualified(call.func) not in _CLIPS:
                continue
            statement = self._program.statement(call)
            block = self._program.block(statement)
            if block not in unscaled:
                unscaled.append(block)
                line = f"{amp.scaler}.unscale_({amp.optimizer})"
                self._edits.insert_lines_before(
                    statement, line, "gradients are unscaled before they are clipped"
                )
        for call in self._calls("master_params"):
            parent = self._program.parents[call]
            if not (isinstance(parent, ast.Call) and self._program.qualified(parent.func) in _CLIPS):
                raise NotRecognised(call.lineno, "amp.master_params is used for more than clipping")
            self._edits.replace(call, f"{amp.model}.parameters()", "autocast leaves the weights in float32")
            self.done.add(call.func)

    def _states(self, amp: Amp) -> None:
        for name in ("state_dict", "load_state_dict"):
            for call in self._calls(name):
                self._check_visible(amp, call)
                self._edits.replace(call.func, f"{amp.scaler}.{name}", "the state is the scaler's")
                self.done.add(call.func)

    def _check_visible(self, amp: Amp, node: ast.AST) -> None:
        """Check that the scaler is visible: a variable of the initializing function, the module or the object."""
        made = self._program.function(amp.statement)
        here = self._program.function(node)
        if made is here or made is None:
            return
        of_object = amp.scaler.startswith("self.") and self._owner(made) is self._owner(here)
        if not of_object or self._owner(made) is None:
            line = self._program.statement(node).lineno
            raise NotRecognised(line, "amp is used in another function than the one that initializes it")

    def _owner(self, function: Function | None) -> ast.ClassDef | None:
        return self._program.owner(function) if function is not None else None
