"""A process group for the fake device: gloo on copies of its tensors in the CPU's memory."""
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map


class Staged(dist.ProcessGroup):
    """What DistributedDataParallel and Octavo ask of a process group."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self):
        return "staged"

    def _run(self, call, outputs, inputs, *rest):
        """outputs, inputs: tensors or lists of them; the same object where a call is in place."""
        there = tree_map(torch.Tensor.cpu, outputs)
        arguments = (there,) if inputs is outputs else (there, tree_map(torch.Tensor.cpu, inputs))
        call(*arguments, *rest).wait()
        for mine, result in zip(tree_leaves(outputs), tree_leaves(there)):
            mine.copy_(result)
        return _Done(tree_leaves(outputs))

    def allreduce(self, tensors, options):
        return self._run(self._gloo.allreduce, tensors, tensors, options)

    def broadcast(self, tensors, options):
        return self._run(self._gloo.broadcast, tensors, tensors, options)

    def allgather(self, outputs, inputs, options):
        return self._run(self._gloo.allgather, outputs, inputs, options)

    def gather(self, outputs, inputs, options):
        return self._run(self._gloo.gather, outputs, inputs, options)

    def _allgather_base(self, output, input, options):
        return self._run(self._gloo._allgather_base, output, input, options)

    def alltoall_base(self, output, input, output_sizes, input_sizes, options):
        return self._run(self._gloo.alltoall_base, output, input, output_sizes, input_sizes, options)

    def barrier(self, options):
        return self._gloo.barrier(options)


class _Done(dist._Work):
    """A collective that has ended."""

    def __init__(self, tensors):
        super().__init__()
        self._future = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    def get_future(self):
        return self._future


def backend(kind):
    """The backend of process groups for this kind of device; "staged" is the one above."""
    if kind == "fake_device" and not hasattr(dist.Backend, "STAGED"):
        dist.Backend.register_backend("staged", Staged, devices=["fake_device", "cpu"])
    return {"fake_device": "staged", "cuda": "nccl"}.get(kind, "gloo")
