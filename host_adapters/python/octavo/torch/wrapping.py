"""A DistributedDataParallel that is made around a prepared model, or around anything that contains its parameters: what it
leaves to octavo, and which one a session is in.
"""
import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_module_registration_hook

from ..errors import StateError
from . import ddp
from .groups import note_wrapper, own_group
from .prepared import open_sessions


def _made_around(wrapper, name, module):
    """Of every module that becomes a part of another: if it is DDP's, these are the parameters that DDP will take."""
    if name != "module" or not isinstance(wrapper, torch.nn.parallel.DistributedDataParallel):
        return
    own = {id(p) for p in module.parameters()}
    for session in sorted(open_sessions(), key=lambda s: s.number):  # alike on every rank
        if not any(id(w.parameter) in own for w in session.weights):
            continue
        note_wrapper(session, wrapper)
        names = ddp.ignored_names(module, session)
        if names and not any(p.requires_grad and n not in names for n, p in module.named_parameters()):
            raise StateError("DistributedDataParallel: expected a parameter that backend "
                             f"{session.run.backend} leaves in the model, found none; leave it out, and name the ranks "
                             "in octavo.prepare(group=)")
        # DDP names a parameter of the module itself with a dot in front.
        wrapper.parameters_to_ignore.update(names, ("." + n for n in names if "." not in n))
        group = session.group or wrapper.process_group
        if names and dist.get_world_size(group) > 1:
            session.reduction_group = own_group(group, session.device)


register_module_module_registration_hook(_made_around)
