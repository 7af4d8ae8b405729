"""``python -m torch.distributed.launch`` in a Python source; in shell scripts: rules/shell.py."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.commands import LAUNCH, RUN, run_strings, to_torchrun
from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_SAID, _BECOMES = "is deprecated", "becomes torchrun, which sets LOCAL_RANK"
_BY_HAND = "use torchrun, which sets LOCAL_RANK, or `isthmus run --nproc`"
_USE_ENV = ("--use_env", "--use-env")


class LaunchModule(Rule):
    """The launcher started by its module name."""

    code = "IM220"
    name = "launch-module"
    summary = "torch.distributed.launch becomes torchrun, in shell scripts too"
    before = 'subprocess.run([sys.executable, "-m", "torch.distributed.launch", "train.py"])'
    after = 'subprocess.run([sys.executable, "-m", "torch.distributed.run", "train.py"])'
    words = ("distributed",)
    anywhere = True

    def find(self, module: Module) -> Iterator[Finding]:
        """Find commands in lists and in strings, and uses of the module itself."""
        if LAUNCH.rpartition(".")[2] not in module.text:
            return
        run = set(run_strings(module))
        for node in module.of(ast.Constant):
            holder = module.parents[node]
            if text(node) == LAUNCH and isinstance(holder, ast.List | ast.Tuple):
                yield self._element(module, node, holder)
            elif f"-m {LAUNCH}" in text(node) and not isinstance(holder, ast.Expr):
                yield self._command(module, node, node in run)
        for name in (*module.of(ast.Attribute), *module.of(ast.Name)):
            if is_read(name) and module.names.qualified(name) == LAUNCH:
                yield self.needs_manual_change(module, name, LAUNCH, _SAID, _BY_HAND)

    def _element(self, module: Module, node: ast.Constant, holder: ast.List | ast.Tuple) -> Finding:
        """Replace the module's name in the arguments of a command."""
        before = holder.elts[: holder.elts.index(node)]
        if not before or text(before[-1]) != "-m" or LAUNCH not in module.code(node):
            return self.undecided(module, node, LAUNCH, _SAID, _BY_HAND)
        draft = Draft(module)
        start = module.start(node) + module.code(node).index(LAUNCH)
        draft.swap(node, start, start + len(LAUNCH), "{run}", run=RUN)
        for each, following in zip(holder.elts, holder.elts[1:], strict=False):
            if text(each) in _USE_ENV:  # torchrun always uses the environment
                draft.swap(each, module.start(each), module.start(following), "")
        return self.automatic_change(node, LAUNCH, _SAID, _BECOMES, draft, 'follows "-m"')

    def _command(self, module: Module, node: ast.Constant, is_run: bool) -> Finding:
        code = module.code(node)
        new = to_torchrun(code)
        if not is_run or LAUNCH in new or new == code or isinstance(module.parents[node], ast.JoinedStr):
            return self.undecided(module, node, LAUNCH, _SAID, _BY_HAND)
        draft = Draft(module).swap(node, module.start(node), module.end(node), "{new}", new=new)
        return self.automatic_change(node, LAUNCH, _SAID, _BECOMES, draft, "is run as a command")
