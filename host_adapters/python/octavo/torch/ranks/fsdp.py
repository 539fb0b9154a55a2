"""fully_shard (FSDP2) of a prepared model: its weights, codes that are gathered instead of values, and the rest of a model
whose weights stay in slots."""
from __future__ import annotations

import torch
import torch.distributed as dist
from torch.utils.weak import WeakIdKeyDictionary

from ...errors import StateError, UnsupportedError
from .. import ops
from ..models import holder_of, is_dtensor, is_fsdp_shard, local, session_of
from ..slots import BACKWARD, CODES, MOVED, have_released, hold_codes, release_codes, release_slots
from . import tensor_parallel
from .groups import collective


# FP8 gather: fully_shard gathers the codes of a weight in the place of its values.
#
# fully_shard asks the local tensor of a sharded parameter what to send, and gives it what came of all
# ranks (fsdp_pre_all_gather, fsdp_post_all_gather). Each rank casts its own rows with the scale of the
# whole weight (octavo.shard/1), so the codes are bit for bit those of the whole weight. For that scale
# the maxima of all weights are combined at the first gather after a step, in one all-reduce.

GATHER_CHOICES = ("values", "fp8")


class Shard(torch.Tensor):
    """This rank's rows of a weight whose codes are gathered. Results of operations are plain."""
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
    """The codes of one weight that ranks gather. amax: of the whole weight, when the shard had `version`."""

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
        hold_codes(self.session, [self.weight])
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
        """The measured and gathered values are no longer right."""
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
                        f"{name}: expected a weight that only its layer reads, since its codes are gathered, found "
                        "that other code read it and got NaN; leave the layer out by layers.skip or by module_filter of "
                        'octavo.prepare, or set fsdp_gather="values"')

    def layers(self):
        """How each sharded weight is gathered, for octavo.report."""
        return {**dict.fromkeys(self.codes, "codes"), **{n: f"values: {why}" for n, why in self.values.items()}}


def gather_of(session, choice, model, reader_of):
    """The Gather of a session for a choice of octavo.prepare, or None. reader_of(weight): the name of
    another module that reads a weight, or None. Raises UnsupportedError for a backend or options whose
    codes ranks cannot gather, and StateError for a model whose values were gathered before."""
    if choice != "fp8":
        return None
    if any(hasattr(p, "_unsharded_param") for group in _groups(model) for p in group.fsdp_params):
        raise StateError('fsdp_gather: expected a model that has not run since fully_shard, found one whose values '
                         'were gathered; call octavo.prepare before its first forward, or set fsdp_gather="values"')
    made = Gather(session)
    for weights in session.of_linears():
        w = weights[0]
        _, why = ops.plan_shard(session.number, w.id, w.shape[0])
        if why:
            raise UnsupportedError(f'fsdp_gather: expected a backend and options whose codes ranks can gather, found '
                                   f'{session.run.backend}: {why}; set fsdp_gather="values"')
        reader = reader_of(w)
        if reader is not None:
            made.values[w.name] = f"{reader} reads them"
    return made


def _shape_refusal(weights, p):
    w, placement = weights[0], p.placements[-1]
    if len(weights) > 1 or w.piece is not None or w.transposed:
        return "it is not a single matrix [out, in]"
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
            'fsdp_gather="fp8": expected fully_shard with reshard_after_forward=True or False, found a number of '
            "ranks, where torch gathers only values; change it, or set fsdp_gather=\"values\"")


def extend_gather(session):
    """fully_shard came before octavo.prepare: it looks again at what its local tensors are."""
    packed = {id(c.weight.parameter) for c in session.gather.codes.values()}
    for group in _groups(holder_of(session)):
        for p in group.fsdp_params:
            if id(p.sharded_param) in packed:
                p._init_extensions()


# fully_shard (FSDP2, and HSDP with a mesh of two dimensions) of a prepared model, before or after
# octavo.prepare.
#
# FSDP assigns the parameters of a module in each pass: the whole weight once it is gathered, and its
# shard afterwards. A converted module sees that (Converted.__setattr__). The Weight then follows: its
# parameter is the shard, which optimizers have; the whole weight comes with each call, in memory that
# FSDP fills anew; the codes have memory as long as that has.

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")  # of names: torch.compile, checkpoint_wrapper


def placed(session, weights, value):
    """A parameter of a converted module was assigned. weights: its Weights. Raises UnsupportedError
    for a sharding that octavo does not follow."""
    if value is None or session.is_closed:
        return
    if weights[0].parallel is not None:
        return tensor_parallel.placed(session, weights, value)
    if is_dtensor(value):
        _shard(session, weights, value)
    elif weights[0].is_sharded:
        _gather(session, weights, value)
    elif not value.is_meta and have_released(session, weights):
        _fill(session, weights, value)


def _shard(session, weights, value):
    """The whole weight is gone, and `value` took its place: the shard that optimizers step, or for
    reshard_after_forward=<int> a larger one until the backward."""
    own = weights[0].parameter
    if not weights[0].is_sharded:
        check(session, weights[0].name, value)
        adopt(session, weights, value)
    elif value is not own and _layout(value) == _layout(own):
        adopt(session, weights, value)
    elif value is own and session.gather is not None:
        session.gather.follow(weights, value)
    release_codes(session, weights)


def _layout(shard):
    return shard.device_mesh, tuple(shard.placements)


def adopt(session, weights, shard):
    """The Weights belong to this shard from now on. The earlier whole parameters are released."""
    if not session.is_sharded:
        session.is_sharded = True
        session.replaced_parameters = WeakIdKeyDictionary()
        session.let_go()
    if weights[0].parameter is not shard:
        session.replaced_parameters[weights[0].parameter] = True
        session.replace(weights[0], shard)
    for w in weights:
        w.is_sharded, w.value = True, None
    session.has_moved_parameters = True
    if session.gather is not None:
        session.gather.follow(weights, shard)


def _gather(session, weights, value):
    """`value` has the whole weight, or stands for it where its codes were gathered. FSDP keeps its
    version, so the host marks as stale: the codes always, and a new weight where the shard's version moved."""
    if weights[0].is_packed:
        weights[0].value = value
        return
    shard = weights[0].parameter
    version = shard._version + local(shard)._version
    for w in weights:
        session.flags.set(w.id, CODES if version == w.version else CODES | MOVED)
        w.value, w.version = value, version
    hold_codes(session, weights)


def _fill(session, weights, value):
    """A weight without memory (meta) got some, by to_empty or load_state_dict(assign=True)."""
    session.replace(weights[0], value)
    hold_codes(session, weights)


def _expect_weights_in_model(session, name):
    session.expect_weights_in_model(
        name, "fully_shard", "use DistributedDataParallel, with octavo.prepare(shard_optimizer_state=True) for states on one "
        "rank each, or after that fully_shard(model, ignored_params=octavo.kept_parameters(model)) and octavo.join")


def check_rest(session, named_parameters):
    """The same where the weights of linears were left out (ignored_params), and octavo.join did not learn of the rest:
    the backend would step what is left."""
    if session.needs_own_optimizer:
        for name, p in named_parameters:
            if is_dtensor(p):
                _expect_weights_in_model(session, name)


def check(session, name, shard):
    """Raises UnsupportedError unless the session can follow a weight that is sharded like this."""
    _expect_weights_in_model(session, name)
    if not is_fsdp_shard(shard):
        raise UnsupportedError(
            f"{name}: expected shards of only fully_shard, found placements {tuple(shard.placements)} of a "
            "tensor-parallel layer (parallelize_module, distribute_tensor); call parallelize_module before "
            "octavo.prepare, without fully_shard, or leave the layer out with module_filter of octavo.prepare")
    mesh, here = shard.device_mesh.device_type, local(shard).device.type
    if here not in (mesh, "meta"):
        raise UnsupportedError(
            f"{name}: expected its shard on {mesh}, where it is gathered, found it on {here} "
            "(CPUOffloadPolicy); call fully_shard without offload_policy")


def check_all(session):
    """Before octavo.prepare changes anything: raises UnsupportedError for a weight that is sharded in a
    way that the session cannot follow, and for one without values that the backend would keep."""
    for weights in session.of_linears():
        p = weights[0].parameter
        if is_dtensor(p) and weights[0].parallel is None:
            check(session, weights[0].name, p)
    empty = next((w for w in session.weights if w.parameter.is_meta), None)
    if empty is not None and session.needs_own_optimizer:
        raise UnsupportedError(
            f"{empty.name}: expected values, which backend {session.run.backend} keeps in its own format, "
            "found a parameter without memory (meta); call model.to_empty(device=...) and initialize it "
            'before octavo.prepare, or set fp8.backend = "te"')


def prepared(session):
    """At the end of octavo.prepare: what was sharded before follows, and weights without memory (meta)
    need no codes yet."""
    for weights in session.of_linears():
        w = weights[0]
        if is_dtensor(w.parameter) and w.parallel is None:
            adopt(session, weights, w.parameter)
        if w.is_elsewhere:
            release_codes(session, weights)
    if session.gather is not None and session.is_sharded:
        extend_gather(session)


def follow(session):
    """Finds the shards that replaced the earlier parameters, by name: optimizers have these."""
    model = holder_of(session)
    if model is None:
        return
    session.has_moved_parameters = False
    for module in model.modules():
        for name, weights in module.__dict__.get("octavo_weights", {}).items():
            p = module._parameters.get(name)
            if is_dtensor(p) and p is not weights[0].parameter:
                _shard(session, weights, p)
    session.has_moved_parameters = False
    found = {_plain_name(n): p for n, p in model.named_parameters(remove_duplicate=False)}
    for w in session.weights:
        p = found.get(_plain_name(w.name))
        if not w.is_sharded and is_dtensor(p) and p is not w.parameter:
            session.replace(w, p)


def _plain_name(name):
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def before_step(session, parameters):
    """Before a step of these parameters, of any model. Raises what check_optimizer raises."""
    if session.has_moved_parameters:
        follow(session)
    check_optimizer(session, parameters)


def check_optimizer(session, parameters):
    """Raises StateError for parameters that fully_shard has replaced: a step of them moves nothing."""
    if session.replaced_parameters and any(p in session.replaced_parameters for p in parameters):
        raise StateError(
            "optimizer: expected the sharded parameters of the model, found parameters from before "
            "fully_shard or to_empty; make the optimizer after it, and call optimizer = octavo.join(model, optimizer)")


# fully_shard of what a backend leaves in the model: with msamp, the weights of linears stay in slots, whose optimizer
# state is on one rank each, and FSDP shards the rest (embeddings, norms, biases), which torch's own optimizer steps.


def kept_parameters(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """The parameters of a prepared model whose values the backend keeps in slots: fully_shard takes them as ignored_params.

    Args:
        model: A prepared model.

    Returns:
        A set, empty for te, which leaves all weights in the model.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> octavo.prepare(model, recipe="msamp.O2", shard_optimizer_state=True)
        >>> fully_shard(model, ignored_params=octavo.kept_parameters(model))
        >>> optimizer = octavo.join(model, torch.optim.AdamW(model.parameters()))
    """
    return set(session_of(model).owned_parameters())


def adopt_rest(session, model, optimizer):
    """Before the backend's Adam takes an optimizer: whether fully_shard has the rest of the model, whose slots are then
    let go. Raises UnsupportedError for parameters that cannot be averaged over the ranks of the session."""
    shards = [(n, p) for n, p in model.named_parameters() if is_dtensor(p)]
    if not shards or session.owners is None:
        return False  # check_rest has the words
    kept, owners = {id(p) for p in session.owned_parameters()}, session.owners
    ranks = dist.get_process_group_ranks(owners.group)
    for name, p in model.named_parameters():
        if id(p) in kept or not p.requires_grad and not is_dtensor(p):
            continue
        if not is_dtensor(p):
            raise UnsupportedError(
                f"{name}: expected a parameter that fully_shard shards, since its gradient is in no slot and nobody else "
                "averages it, found a plain one; also call fully_shard(model, ignored_params=octavo.kept_parameters(model)) "
                "for the model itself")
        found = p.device_mesh.mesh.flatten().tolist()
        if not is_fsdp_shard(p) or p.device_mesh.ndim != 1 or found != ranks:
            raise UnsupportedError(
                f"{name}: expected shards of fully_shard on a mesh of one dimension with ranks {ranks}, which share the "
                f"optimizer state out, found placements {tuple(p.placements)} on ranks {found} of {p.device_mesh.ndim} "
                "dimensions; give both the same ranks, by octavo.prepare(group=) or fully_shard(mesh=)")
    session.let_go()
    gone = {w.id for w in session.weights if w.parameter is None}
    release_slots(session, [s for s in session.slots if owners.lets_go(s, gone)])
    owners.let_go(session, gone)
    return True


class Rest:
    """The optimizer of the parameters that fully_shard has, as a part of the backend's Adam, which has its groups and its
    state."""

    def __init__(self, source):
        groups = [{**g, "params": [p for p in g["params"] if is_dtensor(p)]} for g in source.param_groups]
        self._inner = type(source)(groups)
        self._inner.octavo_is_part = True  # its steps are those of the whole: see steps.py

    def step(self, whole):
        self._inner.state = whole.state
        for own, group in zip(self._inner.param_groups, whole.param_groups):
            own.update((k, v) for k, v in group.items() if k != "params")
        found_inf = getattr(whole, "found_inf", None)
        if found_inf is None or not bool(found_inf):
            self._inner.step()
