"""A checkpoint whose FP8 state does not fit: without FP8 into FP8, FP8 into none, another recipe, history or backend. The Trainer,
Accelerate and Lightning have one choice for it, with the same words."""
import contextlib
import logging
import warnings

import pytest
import torch

import octavo
from conftest import kind, msamp, session, te
from octavo.errors import InvalidError

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
import octavo.accelerate  # noqa: E402  needs accelerate
import octavo.lightning  # noqa: E402
import octavo.transformers  # noqa: E402

STEPS, ROWS = 6, 64  # each way: as many before the checkpoint as after it
PLAIN, DELAYED, CURRENT, MSAMP = None, te("delayed"), te("current"), msamp("O1")
SHORT = te("delayed", amax_history_len=8)


class Model(lightning.LightningModule):
    """A regression for all three frameworks, which keeps its losses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.losses = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32), []

    def forward(self, x, labels):
        loss = (self.second(torch.relu(self.first(x))).float() - labels).square().mean()
        if self.training:
            self.losses.append(loss.item())
        return {"loss": loss}

    def training_step(self, batch):
        return self(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def data():
    x = torch.randn(2 * STEPS * ROWS, 32, generator=torch.Generator().manual_seed(1), device="cpu")
    return [{"x": row, "labels": row.roll(1)} for row in x]


def with_accelerate(folder, overrides, steps, resume=False, **choice):
    a, model = accelerate.Accelerator(mixed_precision="bf16", cpu=kind() == "cpu"), Model()
    model.train()
    made = model, model.configure_optimizers()
    loader = torch.utils.data.DataLoader(data(), batch_size=ROWS)
    if overrides is None:
        wrapped, optimizer, loader = a.prepare(*made, loader)
    else:
        wrapped, optimizer, loader = octavo.accelerate.prepare(a, *made, loader, overrides=overrides, **choice)
    if resume:
        a.load_state(str(folder))
        loader = a.skip_first_batches(loader, STEPS)
    for _, batch in zip(range(steps - STEPS * resume), loader):
        a.backward(wrapped(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    if not resume:
        a.save_state(str(folder))
    return model


def with_trainer(folder, overrides, steps, resume=False, **choice):
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=steps, save_steps=STEPS, per_device_train_batch_size=ROWS, learning_rate=1e-2, bf16=True,
        lr_scheduler_type="constant", use_cpu=kind() == "cpu", report_to=[], disable_tqdm=True, max_grad_norm=0)
    callbacks = [] if overrides is None else [octavo.transformers.OctavoCallback(overrides=overrides, **choice)]
    model = Model()
    trainer = transformers.Trainer(model, arguments, train_dataset=data(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{STEPS}") if resume else None)
    return model


def with_lightning(folder, overrides, steps, resume=False, **choice):
    precision = ({"precision": "bf16-mixed"} if overrides is None
                 else {"plugins": [octavo.lightning.OctavoPrecision(overrides=overrides, **choice)]})
    trainer = lightning.Trainer(max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, **precision)
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(data(), batch_size=ROWS),
                ckpt_path=str(folder / "saved.ckpt") if resume else None)
    if not resume:
        trainer.save_checkpoint(str(folder / "saved.ckpt"))
    return model


FRAMEWORKS = {"Accelerate": with_accelerate, "Trainer": with_trainer, "Lightning": with_lightning}


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    transformers.utils.logging.set_verbosity_error()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
    begin()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a checkpoint of a framework, in FP8 or without."""
    made = {}

    def get(framework, overrides):
        key = framework, overrides is not None
        if key not in made:
            made[key] = tmp_path_factory.mktemp("saved")
            FRAMEWORKS[framework](made[key], overrides, STEPS)
            begin()
        return made[key]

    return get


CHANGES = {"plain into te": (PLAIN, DELAYED), "plain into msamp": (PLAIN, MSAMP), "delayed into current": (DELAYED, CURRENT),
           "another history": (DELAYED, SHORT), "te into msamp": (DELAYED, MSAMP)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_state_begins_anew(framework, change, saved):
    """What was learned, and AdamW's moments, go on; a wrong choice is refused with the right one."""
    before, after = CHANGES[change]
    folder, train = saved(framework, before), FRAMEWORKS[framework]
    with pytest.raises(InvalidError, match='expected .*found .*(start it|start the FP8 state) anew.*fp8_state="anew"'):
        train(folder, after, 2 * STEPS, resume=True)
    begin()
    plain = train(saved(framework, PLAIN), PLAIN, 2 * STEPS, resume=True).losses
    begin()
    model = train(folder, after, 2 * STEPS, resume=True, fp8_state="anew")
    assert len(model.losses) == len(plain) == STEPS
    assert model.losses == pytest.approx(plain, rel=0.02)  # 1.1 at the beginning, 0.7 where it goes on
    assert len(session(model).sites) == 2
    state = octavo.state_dict(model)
    if after is MSAMP:
        assert {int(state[key].item()) for key in state if key.endswith("/step")} == {2 * STEPS}
    else:
        histories = [key for key in state if key.endswith("amax_history")]
        assert len(histories) == (3 if after is not CURRENT else 0)


def begin():
    """Accelerate keeps its settings for the process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_fp8_into_none(framework, saved):
    folder, train = saved(framework, DELAYED), FRAMEWORKS[framework]
    plain = train(saved(framework, PLAIN), PLAIN, 2 * STEPS, resume=True).losses
    begin()
    assert train(folder, PLAIN, 2 * STEPS, resume=True).losses == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize("make", [
    lambda: octavo.transformers.OctavoCallback(fp8_state="new"), lambda: octavo.lightning.OctavoPrecision(fp8_state="new"),
    lambda: octavo.accelerate.Accelerator(mixed_precision="fp8", octavo_fp8_state="new"),
    lambda: octavo.accelerate.prepare(accelerate.Accelerator(), Model(), None, fp8_state="new")])
def test_another_choice(make):
    with pytest.raises(InvalidError, match='fp8_state: expected "saved" or "anew", found .new.; choose one'):
        make()


def test_the_class_of_accelerate(saved):
    a, model = octavo.accelerate.Accelerator(mixed_precision="fp8", cpu=kind() == "cpu", octavo_fp8_state="anew"), Model()
    a.prepare(model, model.configure_optimizers())
    session(model).tensors[next(s.id for s in session(model).slots if s.name == "x/scale")].fill_(3.0)
    a.load_state(str(saved("Accelerate", PLAIN)))
    scales = {key: value for key, value in octavo.state_dict(model).items() if key.endswith("/scale")}
    assert len(scales) == 3 and all(bool((value == 1.0).all()) for value in scales.values())
