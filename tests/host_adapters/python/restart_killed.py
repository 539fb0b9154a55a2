"""torchrun ... restart_killed.py <arguments of samples/python/restart.py>: that sample, whose rank 1 is killed in its
third step, the first time."""
import os
import pathlib
import runpy
import signal
import sys

from torch.optim.optimizer import register_optimizer_step_pre_hook

SAMPLES = pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"
steps = []


def kill_in_the_third(*_):
    steps.append(1)
    if len(steps) == 3:
        pathlib.Path("struck").touch()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.path.append(str(SAMPLES))
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":
        register_optimizer_step_pre_hook(kill_in_the_third)
    runpy.run_path(str(SAMPLES / "restart.py"), run_name="__main__")
