"""Transformer Engine as one more side of a comparison, where it is installed."""
import torch


class Side:
    """Its linear, delayed scaling, in bf16."""

    def __init__(self, te, recipe):
        self._te, self._recipe = te, recipe

    def linear(self, n, k, bias=True):
        return self._te.Linear(k, n, bias=bias, params_dtype=torch.bfloat16)

    def fp8(self):
        return self._te.fp8_autocast(enabled=True, fp8_recipe=self._recipe.DelayedScaling())

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
