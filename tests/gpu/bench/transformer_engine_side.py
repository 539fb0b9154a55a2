"""Transformer Engine as one more side of a comparison, where it is installed.

Written for 2.20.2. One recipe serves all calls, and its weights are cast in each, as ours are.
"""
import torch


class Side:
    """Its linear, delayed scaling."""

    def __init__(self, te, recipe):
        self._te, self._recipe = te, recipe.DelayedScaling()

    def linear(self, n, k, bias=True, dtype=torch.bfloat16):
        return self._te.Linear(k, n, bias=bias, params_dtype=dtype)

    def fp8(self):
        return self._te.autocast(enabled=True, recipe=self._recipe)

    def layer(self, m, n, k):
        """Forward and backward of one linear."""
        layer = self.linear(n, k)
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        dy = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)

        def run():
            x.grad = None
            for parameter in layer.parameters():
                parameter.grad = None
            with self.fp8():
                y = layer(x)
            y.backward(dy)
        run()  # what it cannot do here shows before anything is timed
        return run


def find(device):
    """(Side, ""), or (None, why not)."""
    if device != "cuda":
        return None, "Transformer Engine needs a GPU"
    try:
        import transformer_engine.common.recipe as recipe
        import transformer_engine.pytorch as te
        side = Side(te, recipe)
        side.layer(64, 128, 128)
    except Exception as error:  # pylint: disable=broad-except -- any failure of a foreign library
        return None, f"Transformer Engine: {type(error).__name__}: {error}"
    return side, ""
