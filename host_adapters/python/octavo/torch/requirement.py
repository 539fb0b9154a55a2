"""Which torch this package runs with. Imported first, so that another one is refused before anything is done with it."""
from ..installation import EXPECTED_TORCH, INSTALL_TORCH, has_torch_abi

try:
    import torch
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    raise ImportError(f"octavo.torch: expected {EXPECTED_TORCH}, found none; {INSTALL_TORCH}") from e
if not has_torch_abi(torch.__version__):
    raise ImportError(f"octavo.torch: expected {EXPECTED_TORCH}, found {torch.__version__} in {torch.__path__[0]}; {INSTALL_TORCH}")
