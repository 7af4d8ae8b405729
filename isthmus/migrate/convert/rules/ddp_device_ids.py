"""``DistributedDataParallel(model, device_ids=[local_rank])`` on a machine without an accelerator."""

import libcst as cst

from isthmus.migrate.convert.rule import Rule

_NAMES = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "apex.parallel.DistributedDataParallel",
)
_PARAMETERS = ("device_ids", "output_device")


class DdpDeviceIds(Rule):
    """Device indices of DistributedDataParallel, which raises for modules on the CPU."""

    code = "IM203"
    name = "ddp-device-ids"
    summary = "DistributedDataParallel gets device indices only on an accelerator"
    before = "model = DistributedDataParallel(model, device_ids=[rank])"
    after = 'model = DistributedDataParallel(model, device_ids=[rank] if DEVICE.type != "cpu" else None)'
    words = ("DistributedDataParallel",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Make the arguments depend on the device."""
        if self.context.target or set(_NAMES).isdisjoint(self.qualified(original_node.func)):
            return updated_node
        given = [
            self._argument(original, updated)
            for original, updated in zip(original_node.args, updated_node.args, strict=True)
        ]
        return updated_node.with_changes(args=given)

    def _argument(self, original: cst.Arg, updated: cst.Arg) -> cst.Arg:
        name = original.keyword.value if original.keyword is not None else ""
        value = original.value
        is_none = isinstance(value, cst.Name) and value.value == "None"
        if name not in _PARAMETERS or is_none or isinstance(value, cst.IfExp):
            return updated
        quote = self.quote(original)
        template = f"{{value}} if {{type}} != {quote}cpu{quote} else None"
        self.note(original, f"`{name}` is None on the CPU")
        return updated.with_changes(value=self.expression(template, value=updated.value))
