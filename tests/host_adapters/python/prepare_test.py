"""octavo.prepare and what it refuses: all or nothing, with a typed error and a remedy."""
import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from octavo.torch import Linear
from octavo.torch.ranks import fsdp


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.hidden(self.embedding(tokens))))


def untouched(model):
    return (not any(isinstance(m, Linear) for m in model.modules())
            and not any("octavo_session" in m.__dict__ for m in model.modules()))


def refused(error, match, model, optimizer=None, config=None, **options):
    with pytest.raises(error, match=match):
        octavo.prepare(model, optimizer, config, **options)
    assert not isinstance(model, nn.Module) or untouched(model)


def test_model_with_a_prepared_part_is_refused():
    model, _ = octavo.prepare(nn.Linear(4, 4), None, overrides=te())
    outer = nn.Sequential(model, nn.Linear(4, 4))
    with pytest.raises(octavo.StateError, match="part '0' is prepared already"):
        octavo.prepare(outer, None, overrides=te())


def test_what_is_no_model_or_optimizer_is_refused():
    refused(octavo.InvalidError, "expected a torch.nn.Module, found int", 3)
    refused(octavo.InvalidError, "torch.optim.Optimizer or None, found dict", nn.Linear(2, 2), {})
    refused(octavo.InvalidError, "path of an octavo.toml", nn.Linear(2, 2), config=17)


def test_optimizer_of_another_model_is_refused():
    other = torch.optim.SGD(nn.Linear(4, 4).parameters(), lr=0.1)
    refused(octavo.InvalidError, "found 2 of another", nn.Linear(4, 4), other)


def test_float64_names_every_layer():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, dtype=torch.float64),
                          nn.Linear(4, 4, dtype=torch.float64))
    refused(octavo.InvalidError, r"1: torch.float64; 2: torch.float64", model)


def test_compiled_and_wrapped_models_are_refused():
    refused(octavo.StateError, "before wrapping or compiling", torch.compile(nn.Linear(4, 4)))
    refused(octavo.StateError, "found DataParallel", nn.DataParallel(nn.Linear(4, 4)))


def test_model_without_memory_computes_once_it_has_some():
    torch.manual_seed(1)
    reference = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    x = torch.randn(4, 64)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    octavo.prepare(model, overrides=te())
    model.to_empty(device=x.device)
    model.load_state_dict(reference.state_dict())
    octavo.prepare(reference, overrides=te())
    assert torch.equal(model(x), reference(x))


def test_cuda_without_one_says_what_is_missing():
    refused(octavo.UnsupportedError, "(?s)cuda", nn.Linear(4, 4),
            overrides={**te(), "device.kind": "cuda"})


def test_unknown_backend_recipe_and_key_are_refused(tmp_path):
    refused(octavo.OctavoError, "nobody", nn.Linear(4, 4), overrides={"fp8.backend": "nobody"})
    refused(octavo.InvalidError, "(?s)delayed.*fast", nn.Linear(4, 4), overrides=te("fast"))
    path = tmp_path / "octavo.toml"
    path.write_text("schema = 1\nmixed_precison = 'fp8'\n")
    refused(octavo.InvalidError, r"octavo.toml:2:1.*mixed_precision", nn.Linear(4, 4), config=path)
    refused(octavo.OctavoError, "missing.toml", nn.Linear(4, 4), config=tmp_path / "missing.toml")


def test_wrong_override_type_is_refused():
    refused(octavo.InvalidError, "found a list of texts", nn.Linear(4, 4), overrides={"fp8.backend": ["te"]})


def test_failure_in_the_middle_gives_the_model_back(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    values = [p.data_ptr() for p in model.parameters()]

    def fail(session):
        raise MemoryError("planted")

    monkeypatch.setattr(fsdp, "prepared", fail)
    with pytest.raises(MemoryError):
        octavo.prepare(model, None, overrides={"fp8.backend": "msamp"})
    assert untouched(model) and [p.data_ptr() for p in model.parameters()] == values


def test_left_out_layers_are_listed_with_reasons():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model, _ = octavo.prepare(model, None, module_filter=lambda m, name: name != "1", overrides=te())
    assert session(model).left_out == {"1": "excluded by module_filter"}
    text = octavo.report(model)
    assert "excluded by module_filter" in text and "0  [8, 8]" in text


def test_tied_head_runs_where_the_backend_leaves_weights_in_the_model():
    model, _ = octavo.prepare(Tied(), None, overrides=te())
    assert isinstance(model.head, Linear) and model.head.weight is model.embedding.weight


def test_tied_head_stays_with_torch_where_the_backend_keeps_weights():
    model = Tied()
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), weight_decay=0.0),
                                      overrides=msamp())
    assert isinstance(model.hidden, Linear) and not isinstance(model.head, Linear)
    assert "shared with" in session(model).left_out["head"]
    model(torch.tensor([[1, 2]])).sum().backward()
    optimizer.step()
    assert model.embedding.weight.isfinite().all()


def test_other_precision_leaves_the_model_as_it_is():
    model, _ = octavo.prepare(nn.Linear(4, 4), None, overrides={"mixed_precision": "bf16"})
    assert type(model) is nn.Linear and session(model).run.precision == "bf16"


def test_weight_that_was_frozen_says_so_when_it_is_trained():
    model = nn.Linear(4, 4)
    model.weight.requires_grad_(False)
    model, _ = octavo.prepare(model, None, overrides=te())
    model.weight.requires_grad_(True)
    with pytest.raises(octavo.StateError, match="call octavo.prepare again"):
        model(torch.randn(2, 4)).sum().backward()


def test_explain_needs_no_model():
    assert "te" in octavo.explain(None, overrides=te())
    with pytest.raises(octavo.InvalidError):
        octavo.explain(None, overrides={"nonsense": 1})
