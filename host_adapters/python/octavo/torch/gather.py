"""FP8 gather: fully_shard gathers the codes of a weight in the place of its values.

fully_shard asks the local tensor of a sharded parameter what to send, and gives it what came of all
ranks (fsdp_pre_all_gather, fsdp_post_all_gather). Each rank casts its own rows with the scale of the
whole weight (octavo.shard/1), so the codes are bit for bit those of the whole weight. For that scale
the maxima of all weights are combined at the first gather after a step, in one all-reduce.
"""
import torch
import torch.distributed as dist

from ..errors import StateError, UnsupportedError
from . import caches, ops
from .collective import collective
from .foreign import local
from .prepared import holder_of
from .slots import BACKWARD

CHOICES = ("values", "fp8")


class Shard(torch.Tensor):
    """This rank's rows of a weight whose codes are gathered. What operations give is plain."""
    __torch_function__ = torch._C._disabled_torch_function_impl

    def fsdp_pre_all_gather(self, mesh, outer_size, outer_stride, module, mp_policy):
        return self.octavo_codes.pack(mp_policy.param_dtype)

    def fsdp_post_all_gather(self, outputs, amax, dtype, *, out=None):
        self.octavo_codes.gathered(outputs[0], amax)
        if out is None:
            return _absent(self.octavo_codes.weight, dtype), ()

    def __reduce_ex__(self, protocol):
        return self.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), self.detach().clone())


class _Absent(torch.Tensor):
    """Stands for the whole weight, which has no memory. The view that fully_shard takes of it as the
    parameter is one NaN, so other code that reads the weight gets NaN."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.as_strided:
                return args[0].detach().expand(args[1])
            return func(*args, **(kwargs or {}))


def _absent(weight, dtype):
    return torch.full((), float("nan"), dtype=dtype, device=local(weight.parameter).device).as_subclass(_Absent)


class Codes:
    """What ranks gather of one weight. amax: of the whole weight, when the shard had `version`."""

    def __init__(self, session, weight, packet_bytes):
        self.session, self.weight, self.packet_bytes = session, weight, packet_bytes
        self.amax = self.version = None
        self.has_run = False  # its layer, in some step before

    def now(self):
        p = self.weight.parameter
        return p._version + local(p)._version

    def group(self):
        """The ranks that shard it."""
        mesh = self.weight.parameter.device_mesh
        return mesh.get_group(mesh.ndim - 1)

    def pack(self, dtype):
        """((packet,), amax) of this rank's rows, as they are in the dtype that fully_shard computes in:
        rounding keeps their order, so it can follow the maximum."""
        if self.session.gather.is_stale or self.version != self.now():
            self.session.gather.measure()
        rows, amax = local(self.weight.parameter).detach(), self.amax
        if dtype not in (None, rows.dtype):
            rows, amax = rows.to(dtype).to(rows.dtype), amax.to(dtype).float()
        packet = torch.empty(self.packet_bytes, dtype=torch.uint8, device=rows.device)
        ops.run("shard_cast", self.session.number, self.weight.id, rows, amax, packet)
        return (packet,), amax

    def gathered(self, packets, amax):
        caches.hold(self.session, [self.weight])
        ops.run("shard_gathered", self.session.number, self.weight.id, packets, amax)


class Gather:
    """Of a session: the weights whose codes are gathered, and why the values of others are."""

    def __init__(self, session, values=()):
        self.session = session
        self.codes = {}             # name of a weight -> Codes
        self.values = dict(values)  # name of a weight -> why its values are gathered
        self.is_stale = True        # a step or a write may have changed shards without a new version

    def follow(self, weights, p):
        """A shard took the place of a parameter: whether its codes are gathered."""
        w, session = weights[0], self.session
        if w.name in self.values or type(local(p)) is Shard:
            return
        w.is_packed, _ = False, self.codes.pop(w.name, None)
        why = _shape_refusal(weights, p)
        if not why:
            packet_bytes, why = ops.plan_shard(session.number, w.id, local(p).shape[0])
        if why:
            self.values.update({each.name: why for each in weights})
            return
        shard = local(p)
        shard.__class__ = Shard
        shard.octavo_codes = self.codes[w.name] = Codes(session, w, packet_bytes)
        w.is_packed = self.is_stale = True

    def stale(self):
        """What was measured and gathered is no longer right."""
        self.is_stale = True
        for c in self.codes.values():
            none = torch.empty(0, dtype=torch.uint8, device=self.session.device)
            ops.run("shard_gathered", self.session.number, c.weight.id, none, none)

    def measure(self):
        """Combines the maxima of all weights over the ranks that shard them."""
        session, codes = self.session, list(self.codes.values())
        if any(c.version is None for c in codes):
            _check_resharding(session)
        elif session.flags.since[BACKWARD] and any(c.version != c.now() for c in codes):
            session.combine()  # a step of an optimizer that is none of torch's: the next scales come first
            session.end_step()
        groups = {}
        for c in codes:
            groups.setdefault(c.group().group_name, []).append(c)
        for own in groups.values():
            maxima = torch.zeros(len(own), dtype=torch.float32, device=session.device)
            ops.run("shard_measure", session.number, [c.weight.id for c in own],
                    [local(c.weight.parameter).detach() for c in own], maxima)
            collective(session, "all_reduce of the maxima of shards", dist.all_reduce, maxima, dist.ReduceOp.MAX,
                       group=own[0].group())
            for c, amax in zip(own, maxima.split(1)):
                c.amax, c.version = amax, c.now()
        self.is_stale = False

    def check_readers(self):
        """Raises StateError where other code than its layer read a weight whose codes were gathered: it got
        NaN, and so did the loss. Such a weight has a gradient, though its layer never ran."""
        for name, c in self.codes.items():
            if not c.has_run and c.weight.parameter.grad is not None:
                linears = [site for site in self.session.sites.values() if site.weight is c.weight]
                c.has_run = any(ops.forwards(self.session.number, site.id) for site in linears)
                if not c.has_run:
                    raise StateError(
                        f"{name}: expected a weight that its layer alone reads, since its codes are gathered, found "
                        "that other code read it and got NaN; leave the layer out by layers.skip or the filter of "
                        'octavo.prepare, or set gather="values"')

    def layers(self):
        """What is gathered of each weight that is sharded, for octavo.report."""
        return {**dict.fromkeys(self.codes, "codes"), **{n: f"values: {why}" for n, why in self.values.items()}}


def opened(session, choice, model, reader_of):
    """The Gather of a session for a choice of octavo.prepare, or None. reader_of(weight): the name of
    another module that reads a weight, or None. Raises UnsupportedError for a backend or options whose
    codes ranks cannot gather, and StateError for a model whose values were gathered before."""
    if choice != "fp8":
        return None
    if any(hasattr(p, "_unsharded_param") for group in _groups(model) for p in group.fsdp_params):
        raise StateError('gather: expected a model that has not run since fully_shard, found one whose values '
                         'were gathered; call octavo.prepare before its first forward, or set gather="values"')
    made = Gather(session)
    for weights in session.of_linears():
        w = weights[0]
        _, why = ops.plan_shard(session.number, w.id, w.shape[0])
        if why:
            raise UnsupportedError(f'gather: expected a backend and options whose codes ranks can gather, found '
                                   f'{session.run.backend}: {why}; set gather="values"')
        reader = reader_of(w)
        if reader is not None:
            made.values[w.name] = f"{reader} reads them"
    return made


def _shape_refusal(weights, p):
    w, placement = weights[0], p.placements[-1]
    if len(weights) > 1 or w.piece is not None or w.transposed:
        return "it is no single matrix [out, in]"
    if type(placement).__name__ != "Shard" or placement.dim != 0:
        return f"its rows are not sharded, found placement {placement}"
    ranks = p.device_mesh.size(p.device_mesh.ndim - 1)
    if p.shape[0] % ranks:
        return f"its {p.shape[0]} rows do not divide by {ranks} ranks"
    if type(local(p)) is not torch.Tensor:
        return f"its shard is a {type(local(p)).__name__}"
    return None


def _groups(model):
    """fully_shard's groups of parameters in a model; none of None."""
    for module in () if model is None else model.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        if state is not None and state._fsdp_param_group is not None:
            yield state._fsdp_param_group


def _check_resharding(session):
    if any(group._use_post_forward_mesh for group in _groups(holder_of(session))):
        raise UnsupportedError(
            'gather="fp8": expected fully_shard with reshard_after_forward=True or False, found a number of '
            "ranks, for which torch gathers values alone; change it, or set gather=\"values\"")


def extend(session):
    """fully_shard came before octavo.prepare: it looks again at what its local tensors are."""
    packed = {id(c.weight.parameter) for c in session.gather.codes.values()}
    for group in _groups(holder_of(session)):
        for p in group.fsdp_params:
            if id(p.sharded_param) in packed:
                p._init_extensions()
