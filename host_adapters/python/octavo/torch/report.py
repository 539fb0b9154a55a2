"""octavo.report: where each layer of a model went, as text, as HTML and as data."""
from __future__ import annotations

import html
import json
from typing import Any

import torch

from .. import _abi
from ..session_run import Text
from . import ops
from .models import session_of
from .steps import layers_without_calls

_SHOWN = 8  # names in a line


def _is_left_out(layer):
    """Whether the configuration keeps a linear in the host: layers.skip, or a rule."""
    return layer["placed"] != "fp8" and layer["verdict"]["reason"] == "policy"


def _some(names):
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")


def _effect(rule):
    if "place" in rule:
        return f"place = {json.dumps(rule['place'])}"
    return ", ".join(f"{name} = {json.dumps(o['value'])}" for name, o in rule["options"].items())


def _why(layer):
    verdict = layer["verdict"]
    text = verdict["text"] + (f" ({verdict['evidence']})" if verdict.get("evidence") else "")
    return text + (f"; by {layer['rule']['rule']}: {_effect(layer['rule'])}" if "rule" in layer else "")


class Report(Text):
    """The result of octavo.report: it prints as text and shows as a table in notebooks.

    Attributes:
        fp8: The names of the linears that are placed in FP8.
        host: {name: why} of those that are not, and of other modules with a matrix.
        summary: The first line of the text.

    Example:
        >>> octavo.report(model).assert_fp8(min_layers=48)
    """

    def to_dict(self) -> dict[str, Any]:
        """The whole report as plain data, as octavo.report(model, "json") spells it."""
        return json.loads(self._data)

    @property
    def fp8(self) -> list[str]:
        return [layer["name"] for layer in self.to_dict().get("layers", ()) if layer["placed"] == "fp8"]

    @property
    def host(self) -> dict[str, str]:
        found = self.to_dict()
        return {**{layer["name"]: _why(layer) for layer in found.get("layers", ()) if layer["placed"] != "fp8"},
                **found["left_out"]}

    @property
    def summary(self) -> str:
        return _summary(self.to_dict())

    def assert_fp8(self, min_layers: int = 1) -> None:
        """For your own test.

        Args:
            min_layers: How many linears at least have to be in FP8; once one of them ran, only those that ran count.

        Raises:
            AssertionError: There are fewer; it names the others and why.
        """
        found = self.to_dict()
        idle = found["never_ran"] if found["calls"]["linear_forward"] else []
        there = [name for name in self.fp8 if name not in idle]
        if len(there) < min_layers:
            others = [f"{name}: no forward called it" for name in idle] + [f"{n}: {why}" for n, why in self.host.items()]
            raise AssertionError(f"expected at least {min_layers} linears in FP8, found {len(there)}"
                                 + ("".join(f"\n  {line}" for line in others) or "; the model has no others"))

    def _repr_html_(self) -> str:
        found = self.to_dict()
        rows = [(x["name"], f"{x['shape'][0]} x {x['shape'][1]}", x["placed"], _why(x)) for x in found.get("layers", ())]
        rows += [(name, "", "host", why) for name, why in found["left_out"].items()]
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return (f"<p>{html.escape(_summary(found))}</p><table><thead><tr><th>layer</th><th>shape</th><th>runs in</th>"
                f"<th>why</th></tr></thead><tbody>{cells}</tbody></table>")


def _summary(found):
    layers = found.get("layers", ())
    if "backend" not in found:
        return f"no linear in FP8: the model runs in {found['runs']}"
    wanted = [layer for layer in layers if not _is_left_out(layer)]
    options = found["options"]
    choice = next((options[key]["value"] for key in ("recipe", "opt_level") if key in options), None)
    others = len(found["left_out"]) + len(layers) - len(wanted)
    return (f"{sum(layer['placed'] == 'fp8' for layer in wanted)} of {len(wanted)} linears in FP8 ({found['backend']['id']}"
            + (f", {choice})" if choice else ")") + (f"; {others} not converted" if others else ""))


def _shape(layer):
    return "[{}, {}]".format(*layer["shape"])


def _rows(title, names):
    width = max(map(len, names), default=0)
    return [title, *(f"  {name:<{width}}  {text}" for name, text in names.items())] if names else []


def _remedies(layers):
    ways = {}
    for layer in layers:
        verdict = layer["verdict"]
        if "apply" in verdict:
            ways.setdefault(f"{verdict['apply']}  ({verdict['reason']}, see {verdict['page']})", []).append(layer["name"])
    return [f"  to run {_some(names)} in FP8: {way}" for way, names in ways.items()]


def _text(found):
    layers, lines = found.get("layers", ()), [_summary(found)]
    lines += [f"warning    {text}" for text in found.get("warnings", ())]
    lines += _rows("layers", {x["name"]: f"{_shape(x):<14}{x['placed']:<6}{_why(x)}" for x in layers})
    lines += _remedies(layers)
    lines += _rows("not converted", found["left_out"])
    if gathered := found.get("gathered"):
        lines += ["gathered by fully_shard", *(f"  {name}: {how}" for name, how in gathered.items())]
    given = {name: o for name, o in found.get("options", {}).items() if o["origin"] != "default"}
    options = [f"  {name} = {json.dumps(o['value'])}  ({o['origin']})" for name, o in given.items()]
    lines += ["options", *options] if options else []
    if "optimizer_state" in found:
        lines.append("optimizer state  rank {rank} of {ranks} holds it for {parameters} of {of} parameters".format(
            **found["optimizer_state"]))
    if found["never_ran"] and found["calls"]["linear_forward"]:
        placed = sum(layer["placed"] == "fp8" for layer in layers)
        lines.append(f"never ran  {len(found['never_ran'])} of {placed} FP8 layers: {_some(found['never_ran'])}")
    lines.append("calls      " + ", ".join(f"{name} {count}" for name, count in found["calls"].items())
                 + f"; steps skipped because of Inf or NaN: {found['skipped_steps']}")
    kernels = f", kernels {found['kernels']}, FP8 {found['speed']}" if "kernels" in found else ""
    lines.append(f"device     {found['device']}{kernels}")
    if "backend" in found:
        lines.append("backend    {id} {version}, ABI {abi}, {library}".format(**found["backend"]))
    lines.append(f"config     {found['config']}")
    return "\n".join(lines)


def report(model: torch.nn.Module, format: str = "text") -> Report:
    """The chosen backend, why it runs, and the placement of each layer.

    Args:
        model: A prepared model, also inside of DistributedDataParallel or torch.compile.
        format: "text": how many linears are in FP8, then each layer, then options that are not defaults; "tree" and "json":
            everything, with the candidates, all options and the bytes of slots.

    Returns:
        A Report, which is a str. It includes every module with a matrix that was not converted, with the reason, the number
        of FP8 calls, and, once one ran, the FP8 layers that never did.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> print(octavo.report(model))
    """
    session = session_of(model)
    if not session.is_closed:
        session.settle_all()
    found = json.loads(session.run.report("json"))
    found["left_out"] = session.left_out
    found["calls"] = {name: ops.calls(session.number, verb) for name, verb in (
        ("linear_forward", _abi.VERB_FORWARD), ("linear_backward", _abi.VERB_BACKWARD), ("end_step", _abi.VERB_END_STEP))}
    found["never_ran"] = layers_without_calls(session)
    found["skipped_steps"] = session.skipped_steps
    if session.gather is not None:
        found["gather"] = session.gather.layers()
    if session.owners is not None:
        found["optimizer_state"] = session.owners.share()
    data = json.dumps(found, indent=2)
    if format == "text":
        is_gathered = session.gather is not None and session.is_sharded
        return Report(_text({**found, "gathered": found["gather"] if is_gathered else {}}), data)
    return Report(data if format == "json" else session.run.report(format), data)
