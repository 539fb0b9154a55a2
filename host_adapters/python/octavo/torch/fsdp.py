"""fully_shard (FSDP2, and HSDP with a mesh of two dimensions) of a prepared model, before or after
octavo.prepare.

FSDP assigns the parameters of a module in each pass: the whole weight once it is gathered, and its
shard afterwards. A converted module sees that (Converted.__setattr__). The Weight then follows: its
parameter is the shard, which optimizers have; the whole weight comes with each call, in memory that
FSDP fills anew; the codes have memory as long as that has.
"""
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import StateError, UnsupportedError
from . import caches, tensor_parallel
from .foreign import is_dtensor, is_fsdp_shard, local
from .gather import extend
from .prepared import holder_of
from .slots import CODES, MOVED

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
    elif not value.is_meta and caches.are_released(session, weights):
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
    caches.release(session, weights)


def _layout(shard):
    return shard.device_mesh, tuple(shard.placements)


def adopt(session, weights, shard):
    """The Weights belong to this shard from now on. Whole parameters of before are let go."""
    if not session.is_sharded:
        session.is_sharded = True
        session.gone = WeakIdKeyDictionary()
        session.let_go()
    if weights[0].parameter is not shard:
        session.gone[weights[0].parameter] = True
        session.replace(weights[0], shard)
    for w in weights:
        w.is_sharded, w.value = True, None
    session.is_behind = True
    if session.gather is not None:
        session.gather.follow(weights, shard)


def _gather(session, weights, value):
    """`value` has the whole weight, or stands for it where its codes were gathered. FSDP keeps its
    version, so the host says what is stale: the codes always, and a new weight where the shard's version
    moved."""
    if weights[0].is_packed:
        weights[0].value = value
        return
    shard = weights[0].parameter
    version = shard._version + local(shard)._version
    for w in weights:
        session.flags.set(w.id, CODES if version == w.version else CODES | MOVED)
        w.value, w.version = value, version
    caches.hold(session, weights)


def _fill(session, weights, value):
    """A weight without memory (meta) got some, by to_empty or load_state_dict(assign=True)."""
    session.replace(weights[0], value)
    caches.hold(session, weights)


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
            f"{name}: expected shards of fully_shard alone, found placements {tuple(shard.placements)} of a "
            "tensor-parallel layer (parallelize_module, distribute_tensor); call parallelize_module before "
            "octavo.prepare, without fully_shard, or leave the layer out with the filter of octavo.prepare")
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
            caches.release(session, weights)
    if session.gather is not None and session.is_sharded:
        extend(session)


def follow(session):
    """Finds the shards that took the place of parameters of before, by name: optimizers have these."""
    model = holder_of(session)
    if model is None:
        return
    session.is_behind = False
    for module in model.modules():
        for name, weights in module.__dict__.get("octavo_weights", {}).items():
            p = module._parameters.get(name)
            if is_dtensor(p) and p is not weights[0].parameter:
                _shard(session, weights, p)
    session.is_behind = False
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
    if session.is_behind:
        follow(session)
    check_optimizer(session, parameters)


def check_optimizer(session, parameters):
    """Raises StateError for parameters that fully_shard has replaced: a step of them moves nothing."""
    if session.gone and any(p in session.gone for p in parameters):
        raise StateError(
            "optimizer: expected the sharded parameters of the model, found parameters of before "
            "fully_shard or to_empty; make the optimizer after it, and call optimizer = octavo.join(model, optimizer)")
