"""Which torch this package runs with. Imported first, so that another one is refused before anything is done with it."""
from ..installation import NEXT_TORCH, TORCH, dotted, numbers

EXPECTED = f"torch {dotted(TORCH)} or later, below {dotted(NEXT_TORCH)}"

try:
    import torch
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    raise ImportError(f"octavo.torch: expected {EXPECTED}, found none; run `python -m pip install 'octavo[torch]'`") from e
if not TORCH <= numbers(torch.__version__) < NEXT_TORCH:
    raise ImportError(f"octavo.torch: expected {EXPECTED}, found {torch.__version__} in {torch.__path__[0]}; run "
                      f"`python -m pip install 'torch>={dotted(TORCH)},<{dotted(NEXT_TORCH)}'`")
