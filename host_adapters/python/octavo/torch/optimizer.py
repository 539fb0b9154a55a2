"""The optimizer: the backend's Adam if the backend keeps weights or gradients in slots, and the
update of scales in every optimizer step."""
import torch

from .. import _abi
from ..errors import InvalidError, UnsupportedError
from . import ddp
from .converted import placeholder
from .gradient import SlotGradient
from .prepared import session_of
from .slots import MARKED


class Adam(torch.optim.Optimizer):
    """Adam or AdamW on the backend's own formats: octavo.optimizer/1.

    octavo.prepare makes it from a torch Adam or AdamW. The two share their parameter groups, so
    schedulers created before or after see the same lr. Moments and step counts are in slots:
    octavo.state_dict contains them, state_dict() contains the groups only. Use it from one thread.
    """

    def __init__(self, session, source):
        self._session = session
        self._source = source
        groups = source.param_groups
        super().__init__(groups, {k: groups[0][k] for k in ("lr", "betas", "eps", "weight_decay")})

    def __getstate__(self):
        return {**super().__getstate__(), "_session": self._session, "_source": None}

    def load_state_dict(self, state_dict):
        """Loads the groups. Schedulers created for the original optimizer use them as well."""
        super().load_state_dict(state_dict)
        if self._source is not None:
            self._source.param_groups = self.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        """Steps every parameter that has a gradient. Returns the loss of the closure, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        ids, rows, factors = [], [], []
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            row = [float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], 1.0, 0.0,
                   0.0]
            for p in group["params"]:
                weights = self._session.weights_of(p)
                factor = self._factor(p, weights)
                if factor is None:
                    continue
                for w in weights:
                    ids.append(w.id)
                    rows.append(row)
                    factors.append(factor)
        if ids:
            hyper = torch.tensor(rows, dtype=torch.float32)
            hyper[:, 5] = torch.stack(factors)
            self._session.optimizer_step(ids, hyper)
        self._session.clear_compiled_gradients()
        return loss

    def _factor(self, p, weights):
        """The factor of the stored gradient; None without a gradient."""
        if not weights:
            return None
        if isinstance(p.grad, SlotGradient):
            p.grad.complete()
            return p.grad.factor
        if p.grad is not None or any(w.compiled for w in weights):
            return torch.ones((), dtype=torch.float32)
        return None

    def zero_grad(self, set_to_none=True):
        """As in torch; also drops the gradients of compiled graphs."""
        super().zero_grad(set_to_none)
        self._session.clear_compiled_gradients()


def _refuse(session, optimizer, expected, remedy):
    raise UnsupportedError(f"optimizer: backend {session.run.backend} keeps weights or gradients in its "
                           f"own format; expected {expected}, found {type(optimizer).__name__}"
                           f"({_settings(optimizer)}); {remedy}")


def _settings(optimizer):
    named = ("weight_decay", "amsgrad", "maximize")
    return ", ".join(f"{k}={optimizer.defaults[k]}" for k in named if k in optimizer.defaults)


def join(session, optimizer):
    """The optimizer that steps the model of this session: the same one, or the backend's Adam.
    Raises UnsupportedError or InvalidError if the backend's Adam cannot replace it."""
    if not session.needs_own_optimizer or optimizer is None:
        return optimizer
    if isinstance(optimizer, Adam):
        return optimizer
    unknown = [str(p.dtype) for g in optimizer.param_groups for p in g["params"]
               if p.requires_grad and not session.weights_of(p)]
    if unknown:
        raise InvalidError(f"optimizer: expected parameters in float32, bfloat16 or float16, found "
                           f"{', '.join(sorted(set(unknown)))}; backend {session.run.backend} cannot "
                           "step them: convert them before octavo.prepare")
    remedy = 'use torch.optim.AdamW or Adam, or fp8.backend = "te", which steps with any optimizer'
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        _refuse(session, optimizer, "Adam or AdamW", remedy)
    if optimizer.state:
        raise InvalidError("optimizer: expected one without steps, found moments in it; call "
                           "octavo.prepare before the first step, and load its state afterwards")
    for group in optimizer.param_groups:
        if group.get("amsgrad") or group.get("maximize"):
            _refuse(session, optimizer, "amsgrad=False and maximize=False", remedy)
        decoupled = type(optimizer) is torch.optim.AdamW or group.get("decoupled_weight_decay")
        wanted = "adamw" if decoupled else "adam"
        have = session.run.options().get("optimizer", "adamw")
        if group["weight_decay"] != 0 and have != wanted:
            _refuse(session, optimizer, f"the weight decay of {have}",
                    f'set fp8.{session.run.backend}.optimizer = "{wanted}"')
    return Adam(session, optimizer)


def take_weights(session):
    """Moves the values of weights that the backend keeps into its slots and replaces them by
    placeholders. Returns [(parameter, data)] for give_back."""
    taken = []
    try:
        for p in session.owned_parameters():
            data = p.data
            session.write(p, data)
            taken.append((p, data))
            p.data = placeholder(p)
    except BaseException:
        give_back(taken)
        raise
    return taken


def give_back(taken):
    """Undoes take_weights."""
    for p, data in taken:
        p.data = data


def _are_finite(optimizer):
    return all(bool(torch.isfinite(p.grad).all()) for group in optimizer.param_groups
               for p in group["params"] if p.grad is not None)


class _Steps:
    """Hooks around optimizer.step: combine slots over the ranks, skip the step if a cast met Inf or
    NaN, end the step."""

    def __init__(self, session):
        self.session = session

    def before(self, optimizer, args, kwargs):
        session = self.session
        ddp.before_step(session)
        if session.nonfinite is None or not bool(session.nonfinite):
            return
        if session.nonfinite.item() == MARKED and _are_finite(optimizer):
            # GradScaler skipped an earlier step. This one is valid, but amax still has that Inf.
            session.drop_records()
            return
        session.skipped_steps += 1
        session.drop_records()  # an Inf in a history would freeze its scale
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = None
        session.clear_compiled_gradients()

    def after(self, optimizer, args, kwargs):
        self.session.end_step()


def hook(session, optimizer):
    """Updates the scales in every step of an optimizer. A step whose backward met Inf or NaN
    changes no parameter and is counted in session.skipped_steps."""
    if optimizer is None:
        return
    steps = _Steps(session)
    optimizer.register_step_pre_hook(steps.before)
    optimizer.register_step_post_hook(steps.after)


def clip_grad_norm_(model, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """As torch.nn.utils.clip_grad_norm_(model.parameters(), ...), including gradients of compiled
    graphs, which torch's function does not see. model: a prepared model, or parameters as in torch.
    Returns the norm before clipping."""
    if isinstance(model, torch.nn.Module):
        session = session_of(model)
        ddp.before_clip(session)
        session.show_compiled_gradients()
        model = model.parameters()
    return torch.nn.utils.clip_grad_norm_(model, max_norm, norm_type, error_if_nonfinite)
