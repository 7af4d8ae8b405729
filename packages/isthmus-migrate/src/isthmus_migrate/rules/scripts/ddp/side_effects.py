"""Restrict side effects to one rank: messages, checkpoints, folders, downloads."""

import ast

from isthmus_migrate.rules.scripts.ddp.training import Training, is_loader
from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import Function, Program, is_main, method

_FILES = {
    f"{module}.{name}"
    for module, names in {
        "os": ("remove", "unlink", "rename", "replace"),
        "shutil": ("copy", "copy2", "copyfile", "move", "rmtree"),
    }.items()
    for name in names
}
_BARRIER = "torch.distributed.barrier()"
_FIRST, _THEN = f"if LOCAL_RANK != 0:\n    {_BARRIER}", f"if LOCAL_RANK == 0:\n    {_BARRIER}"


class SideEffects:
    """The side effects of one script.

    Args:
        program: the script.
        edits: receives the changes.
        started: line at which the process group starts.
        device: name of the device constant.
    """

    def __init__(self, program: Program, edits: Edits, started: int, device: str) -> None:
        self._program = program
        self._edits = edits
        self._started = started
        self._device = device
        self._saves = any(program.qualified(call.func) == "torch.save" for call in program.calls)
        self.used: set[str] = set()

    def restrict(self, training: Training) -> None:
        """Let rank 0 print and write files, load after a barrier, and show progress bars once."""
        bars = {call for loop in training.loops for call in ast.walk(loop.node.iter)}
        for call in self._program.calls:
            name = self._program.qualified(call.func)
            if name == "print":
                self._rename(call, "print_once", "rank 0 prints")
            elif name == "torch.save":
                self._rename(call, "save_once", "rank 0 saves")
            elif name in _FILES:
                self._run_once(call)
            elif name == "torch.load":
                self._load(call)
            elif name in ("os.makedirs", "os.mkdir"):
                self._make_folder(call, name)
            elif name.split(".")[-1] == "tqdm" and (call in bars or name.startswith("tqdm")):
                self._add(call, "disable", "RANK != 0", "rank 0 shows the bar")
            elif self._downloads(call):
                self._download(call)

    def _rename(self, call: ast.Call, name: str, message: str) -> None:
        self.used.add(name)
        self._edits.replace(call.func, name, message)

    def _run_once(self, call: ast.Call) -> None:
        statement = self._program.statement(call)
        if isinstance(statement, ast.Expr):
            self._edits.guard(statement, "if RANK == 0:", "done by rank 0")

    def _load(self, call: ast.Call) -> None:
        if len(call.args) < 2:
            self._add(call, "map_location", self._device, "loaded onto this rank's device")
        if not self._saves or self._in_workers(call) or self._is_before_start(call):
            return
        outermost: ast.stmt = self._program.statement(call)
        for each in self._program.ancestors(outermost):
            if isinstance(each, Function | ast.ClassDef | ast.Module | ast.For):
                break
            if isinstance(each, ast.stmt) and not is_main(each):
                outermost = each
        self._edits.insert_lines_before(outermost, _BARRIER, "the writing rank has finished")

    def _make_folder(self, call: ast.Call, name: str) -> None:
        if name == "os.mkdir":
            self._edits.replace(call.func, "os.makedirs", "another rank may have created the folder")
        self._add(call, "exist_ok", "True", "another rank may have created the folder")

    def _in_workers(self, node: ast.AST) -> bool:
        """Whether a DataLoader's workers run a node: it is in a dataset's method."""
        classes = (each for each in self._program.ancestors(node) if isinstance(each, ast.ClassDef))
        return any(method(each, "__getitem__") or method(each, "__iter__") for each in classes)

    def _is_before_start(self, node: ast.expr | ast.stmt) -> bool:
        return self._program.function(node) is None and node.lineno < self._started

    def _downloads(self, call: ast.Call) -> bool:
        given = {each.arg: each.value for each in call.keywords}
        value = given.get("download")
        return isinstance(value, ast.Constant) and value.value is True and not is_loader(self._program, call)

    def _download(self, call: ast.Call) -> None:
        statement = self._program.statement(call)
        if self._is_before_start(statement):
            return
        self._edits.insert_lines_before(statement, _FIRST, "the first rank of each node downloads")
        self._edits.insert_lines_after(statement, _THEN, "")

    def _add(self, call: ast.Call, keyword: str, value: str, message: str) -> None:
        is_generator = len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp)
        if is_generator or any(each.arg == keyword for each in call.keywords):
            return
        given = [*call.args, *(each.value for each in call.keywords)]
        end = self._edits.end(call) - 1
        rest = self._edits.source[max(map(self._edits.end, given)) : end] if given else ","
        comma = "" if "," in rest else ", "
        self._edits.insert(end, f"{comma}{keyword}={value}", message, call.lineno)
