"""``python -m torch.distributed.launch`` in a Python source; in shell scripts: convert/shell.py."""

import libcst as cst

from isthmus.migrate.convert.rule import Rule

LAUNCH, RUN = "torch.distributed.launch", "torch.distributed.run"


class LaunchModule(Rule):
    """The launcher started by its module name."""

    code = "IM220"
    name = "launch-module"
    summary = "torch.distributed.launch becomes torchrun, in shell scripts too"
    before = 'subprocess.run([sys.executable, "-m", "torch.distributed.launch", "train.py"])'
    after = 'subprocess.run([sys.executable, "-m", "torch.distributed.run", "train.py"])'
    words = (LAUNCH,)

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        """Replace the module's name in the arguments of a command."""
        is_element = isinstance(self.parent(original_node), cst.Element)
        if not is_element or original_node.raw_value != LAUNCH or original_node.prefix:
            return updated_node
        self.note(original_node, f"`{LAUNCH}` becomes `{RUN}`, which is torchrun")
        return updated_node.with_changes(value=original_node.value.replace(LAUNCH, RUN))
