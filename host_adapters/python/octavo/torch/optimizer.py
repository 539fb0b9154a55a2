"""The backend's Adam, which takes the place of torch's where weights or gradients are in slots."""
import weakref

import torch

from ..errors import InvalidError, StateError, UnsupportedError
from . import ddp
from .gradient import SlotGradient
from .prepared import session_of
from .session import disable
from .slots import BACKWARD


_adams = weakref.WeakSet()


class Adam(torch.optim.Optimizer):
    """Adam or AdamW on the backend's own formats: octavo.optimizer/1.

    octavo.prepare makes it from a torch Adam or AdamW. The two share their parameter groups, so
    schedulers created before or after see the same lr. Moments and step counts are in slots:
    octavo.state_dict contains them, state_dict() contains the groups only. Use it from one thread.
    """

    def __init__(self, session, source):
        self.session = session
        self._source = source
        groups = source.param_groups
        super().__init__(groups, {k: groups[0][k] for k in ("lr", "betas", "eps", "weight_decay")})
        _adams.add(self)

    def __getstate__(self):
        return {**super().__getstate__(), "session": self.session, "_source": None}

    def __setstate__(self, state):
        super().__setstate__(state)
        _adams.add(self)

    def load_state_dict(self, state_dict):
        """Loads the groups. Schedulers created for the original optimizer use them as well."""
        super().load_state_dict(state_dict)
        if self._source is not None:
            self._source.param_groups = self.param_groups

    @disable
    @torch.no_grad()
    def step(self, closure=None):
        """Steps every parameter that has a gradient. Returns the loss of the closure, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        session = self.session
        if session.is_closed:
            raise StateError("optimizer: expected a prepared model, found one that octavo.restore made "
                             "plain again, or that was prepared for another optimizer; use that one")
        if self._changes_nothing():
            return loss
        ids, rows, factors = [], [], []
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            row = [float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], 1.0, 0.0,
                   0.0]
            for p in group["params"]:
                weights = session.weights_of(p)
                factor = _factor(p, weights)
                if factor is None:
                    continue
                for w in weights:
                    ids.append(w.id)
                    rows.append(row)
                    factors.append(factor)
        if ids:
            hyper = torch.tensor(rows, dtype=torch.float32)
            hyper[:, 5] = torch.stack(factors)
            session.optimizer_step(ids, hyper)
        session.clear_graph_gradients()
        return loss

    def _changes_nothing(self):
        """Whether this is the step with zeros by which torch.distributed.checkpoint makes an
        optimizer allocate its state. The state here exists, so that step must leave it alone."""
        return not self.session.flags.since[BACKWARD] and all(
            float(group["lr"]) == 0 for group in self.param_groups)


def _factor(p, weights):
    """The factor of the stored gradient; None without a gradient."""
    if not weights:
        return None
    if isinstance(p.grad, SlotGradient):
        p.grad.complete()
        return p.grad.factor
    return None if p.grad is None else torch.ones(())


def adams_of(session):
    """The backend's optimizers that step this session."""
    return [adam for adam in _adams if adam.session is session]


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
        optimizer.session = session
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
    if adams_of(session):  # another stage
        session.clear_moments([p for group in optimizer.param_groups for p in group["params"]])
    return Adam(session, optimizer)


def clip_grad_norm_(model, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """As torch.nn.utils.clip_grad_norm_(model.parameters(), ...). For a compiled model under
    DistributedDataParallel, it averages gradients in slots over the ranks first; call it on every
    rank then. model: a prepared model, or parameters as in torch. Returns the norm before
    clipping."""
    if isinstance(model, torch.nn.Module):
        session = session_of(model)
        ddp.before_clip(session)
        model = model.parameters()
    return torch.nn.utils.clip_grad_norm_(model, max_norm, norm_type, error_if_nonfinite)
