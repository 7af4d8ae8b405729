"""``f"cuda:{rank}"``, and the same by ``+``, ``%`` and ``format``."""

import libcst as cst

from isthmus.migrate.convert.strings import DeviceStrings, is_formatted


class DeviceFormat(DeviceStrings):
    """Strings that append a number to ``cuda:``."""

    code = "IM103"
    name = "device-format"
    summary = "a numbered CUDA device becomes that of the device in use"
    before = 'device = f"cuda:{rank}"'
    after = 'device = f"{DEVICE.type}:{rank}"'
    words = ("cuda:",)

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        """``f"cuda:{rank}"``."""
        return self._replace(original_node, updated_node)

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        """``"cuda:" + str(rank)`` and ``"cuda:%d" % rank``."""
        return self._replace(original_node, updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """``"cuda:{}".format(rank)``."""
        return self._replace(original_node, updated_node)

    def _replace(self, original: cst.BaseExpression, updated: cst.BaseExpression) -> cst.BaseExpression:
        if not is_formatted(original):
            return updated
        self.note(original, f"the type of a numbered device becomes `{self.context.device}.type`")
        return self.neutral(original, updated)
