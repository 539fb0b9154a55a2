"""torchrun ... restart_killed.py <arguments of samples/python/restart.py>: that sample, whose rank 1 is killed in its
third step, the first time."""
import os
import pathlib
import runpy

from rank_faults import Fault, arm
from torchrun import SAMPLES

if __name__ == "__main__":
    fault = Fault("killed", "fsdp", 2, 1, 3, True)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and int(os.environ["RANK"]) == fault.rank:
        arm(fault, pathlib.Path())
    runpy.run_path(str(SAMPLES / "restart.py"), run_name="__main__")
