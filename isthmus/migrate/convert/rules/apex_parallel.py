"""``apex.parallel`` becomes PyTorch's DistributedDataParallel and SyncBatchNorm."""

import libcst as cst

from isthmus.migrate.convert.rule import Rule

_DDP = "torch.nn.parallel.DistributedDataParallel"
_CONVERT = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
# Arguments of apex's DistributedDataParallel that tune reductions; PyTorch tunes them in other ways.
_DROPPED = {"message_size", "delay_allreduce", "shared_param", "allreduce_trigger_params"}
_DROPPED |= {"retain_allreduce_buffers", "num_allreduce_streams"}


class ApexParallel(Rule):
    """Data parallelism by apex."""

    code = "IM231"
    name = "apex-parallel"
    summary = "apex.parallel becomes torch.nn.parallel.DistributedDataParallel and torch.nn.SyncBatchNorm"
    before = "model = apex.parallel.DistributedDataParallel(model, delay_allreduce=True)"
    after = "model = torch.nn.parallel.DistributedDataParallel(model)"
    words = ("apex",)

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the called name."""
        if self._name(node):
            self.claim(node.func)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace the call, if every argument has a counterpart."""
        name = self._name(original_node)
        if name == "DistributedDataParallel":
            return self._wrapped(original_node, updated_node)
        if name == "convert_syncbn_model":
            return self._synchronized(original_node, updated_node)
        return updated_node

    def _name(self, node: cst.Call) -> str:
        names = (name.partition("apex.parallel.")[2] for name in self.qualified(node.func))
        known = ("DistributedDataParallel", "convert_syncbn_model")
        return next((each for each in names if each in known), "")

    def _wrapped(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        kept = [each for each in updated.args if each.keyword is None or each.keyword.value not in _DROPPED]
        if len(kept) != 1 or kept[0].star:
            self.left(
                original, "apex.parallel.DistributedDataParallel", "has arguments that PyTorch's lacks", _DDP
            )
            return updated
        self.replaced(original.func)
        self.note(original, "DistributedDataParallel of PyTorch")
        return updated.with_changes(func=self.expression(_DDP), args=[_last(kept[0])])

    def _synchronized(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        only = updated.args[0] if len(updated.args) == 1 and not updated.args[0].star else None
        if only is None:
            self.left(
                original, "apex.parallel.convert_syncbn_model", "has more arguments than a module", _CONVERT
            )
            return updated
        self.replaced(original.func)
        self.note(original, "SyncBatchNorm of PyTorch, which is for accelerators")
        call = updated.with_changes(
            func=self.expression(_CONVERT), args=[_last(only).with_changes(keyword=None)]
        )
        if self.context.target:
            return call
        quote = self.quote(original)
        template = f"{{call}} if {{type}} != {quote}cpu{quote} else {{module}}"
        return self.fitted(original, self._choice(template, call, only.value))

    def _choice(self, template: str, call: cst.Call, module: cst.BaseExpression) -> cst.BaseExpression:
        return self.expression(template.replace("{module}", "{unchanged}"), call=call, unchanged=module)


def _last(argument: cst.Arg) -> cst.Arg:
    return argument.with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
    )
