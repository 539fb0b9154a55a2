"""Octavo under the Trainer of transformers: OctavoCallback.

It takes half a minute, since both backends train for 200 steps, stop and resume.
"""
import errno
import itertools
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import pytest
import torch
from safetensors import safe_open

import octavo
from conftest import kind, msamp, session, te
from octavo import _abi
from octavo.errors import InvalidError, ResourceError, StateError, UnsupportedError
from octavo.torch import ops

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from octavo.torch.checkpoint import saved as saving
from octavo.transformers import FILE, OctavoCallback  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"))
import tiny_gpt  # noqa: E402

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
STEPS, ROWS = 200, 16
LAYERS = 15  # seven in each of two blocks, and lm_head
BACKENDS = {"te": te("delayed"), "msamp": msamp("O2")}


def made():
    transformers.set_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tiny_gpt.VOCABULARY, hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None))


def trainer_of(folder, steps, callbacks=(), model=None, **settings):
    data = [{"input_ids": t, "labels": t} for t in tiny_gpt.text(steps * ROWS).cpu()]
    settings = {"bf16": True, "learning_rate": 3e-3, "logging_steps": 20, "save_steps": 1000,
                "logging_first_step": True, "per_device_train_batch_size": ROWS, **settings}
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=steps, use_cpu=kind() == "cpu", report_to=[], disable_tqdm=True, **settings)
    return transformers.Trainer(model or made(), arguments, train_dataset=data,
                                callbacks=[transformers.TrainerCallback(), *callbacks])


def logged(trainer, key="loss"):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


@pytest.fixture(scope="module")
def bf16(tmp_path_factory):
    """The mean loss of the last 40 steps of the same training without Octavo."""
    trainer = trainer_of(tmp_path_factory.mktemp("bf16"), STEPS)
    trainer.train()
    return sum(logged(trainer)[-2:]) / 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_final_loss_is_that_of_bf16(bf16, backend, tmp_path):
    trainer = trainer_of(tmp_path, STEPS, [OctavoCallback(overrides=BACKENDS[backend])])
    trainer.train()
    losses = logged(trainer)
    assert losses[0] > 1.5 * bf16 > 1.5
    assert sum(losses[-2:]) / 2 == pytest.approx(bf16, rel=0.01)
    assert sum(losses[-2:]) / 2 != bf16
    number = session(trainer.model).number
    assert ops.calls(number, _abi.VERB_FORWARD) == LAYERS * STEPS
    assert ops.calls(number, _abi.VERB_END_STEP) == STEPS


def everything(trainer):
    return {**octavo.state_dict(trainer.model),
            **{k: v.clone() for k, v in trainer.model.state_dict().items()}}


def run(folder, backend, checkpoint=None, **callback):
    trainer = trainer_of(folder, 8, [OctavoCallback(overrides=BACKENDS[backend], **callback)],
                         save_steps=4, logging_steps=1)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


@pytest.mark.parametrize("backend", BACKENDS)
def test_resuming_gives_the_same_bits(backend, tmp_path):
    whole = run(tmp_path, backend)
    resumed = run(tmp_path, backend, str(tmp_path / "checkpoint-4"))
    assert logged(resumed) == logged(whole)
    a, b = everything(whole), everything(resumed)
    assert a.keys() == b.keys() and len(a) > 20
    for key in a:
        assert torch.equal(a[key].view(torch.uint8), b[key].view(torch.uint8)), key
    assert len(os.listdir(tmp_path)) == 2
    assert not list(tmp_path.rglob("*.partial"))


class Terminate(transformers.TrainerCallback):
    """Asks for a checkpoint in one event of the third step, as the Trainer's handler of SIGTERM does."""

    def __init__(self, event):
        setattr(self, event, self._ask)

    def _ask(self, args, state, control, **kwargs):
        if state.global_step == 3:
            handler = next(c for c in self.trainer.callback_handler.callbacks if hasattr(c, "jit_manager"))
            handler.jit_manager.is_checkpoint_requested = True


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("event", ["on_step_begin", "on_substep_end", "on_step_end"])
def test_a_checkpoint_after_sigterm_resumes_with_the_same_bits(event, backend, tmp_path):
    """The request is seen before a step (on_step_begin), between backward and step (a micro-batch ends), after it."""
    settings = {"logging_steps": 1, "gradient_accumulation_steps": 2, "per_device_train_batch_size": ROWS // 2}
    whole = trainer_of(tmp_path / "whole", 6, [OctavoCallback(overrides=BACKENDS[backend])], **settings)
    whole.train()
    terminate = Terminate(event)
    stopped = trainer_of(tmp_path, 6, [OctavoCallback(overrides=BACKENDS[backend])], enable_jit_checkpoint=True,
                         **settings)
    stopped.callback_handler.callbacks.insert(0, terminate)
    terminate.trainer = stopped
    stopped.train()
    assert stopped.state.global_step in (3, 4)
    saved, = tmp_path.glob("checkpoint-*")
    resumed = trainer_of(tmp_path, 6, [OctavoCallback(overrides=BACKENDS[backend])], **settings)
    resumed.train(resume_from_checkpoint=str(saved))
    a, b = everything(whole), everything(resumed)
    for key in a:
        assert torch.equal(a[key].view(torch.uint8), b[key].view(torch.uint8)), key


def test_a_checkpoint_that_moved_is_named(tmp_path):
    run(tmp_path, "te")
    moved = tmp_path / "elsewhere" / "saved"
    shutil.copytree(tmp_path / "checkpoint-4", moved)
    shutil.rmtree(tmp_path / "checkpoint-4")
    with pytest.raises(InvalidError, match="expected FP8 state in .*checkpoint-4.*resume="):
        run(tmp_path, "te", str(moved))
    assert run(tmp_path, "te", str(moved), resume=moved).state.global_step == 8
    (moved / FILE).unlink()
    with pytest.raises(InvalidError, match="found none"):
        run(tmp_path, "te", str(moved), resume=moved)


def test_damage_and_files_of_another_step_are_refused(tmp_path):
    run(tmp_path, "te")
    saved, other = tmp_path / "checkpoint-4", tmp_path / "checkpoint-8"
    whole = (saved / FILE).read_bytes()
    draw = random.Random(3)
    for _ in range(6):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        (saved / FILE).write_bytes(damaged)
        with pytest.raises(InvalidError, match="damaged|expected"):
            run(tmp_path, "te", str(saved))
    (saved / FILE).write_bytes(whole[:-1])
    with pytest.raises(InvalidError, match="safetensors, found a damaged one"):
        run(tmp_path, "te", str(saved))
    shutil.copy(other / FILE, saved / FILE)
    with pytest.raises(InvalidError, match="FP8 state of step 4, found step 8"):
        run(tmp_path, "te", str(saved))


def test_a_save_that_fails_leaves_the_file_before_it(tmp_path, monkeypatch):
    path = str(tmp_path / FILE)
    kept = {"a": torch.ones(2)}
    saving.write(kept, path, 1)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceError, match="No space left"):
        saving.write({"a": torch.zeros(2)}, path, 2)
    assert torch.equal(saving.read(path, 1)["a"], kept["a"])


def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path):
    path, last, draw = str(tmp_path / FILE), 0, random.Random(11)
    for _ in range(12):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            for number in itertools.count(last + 1):
                saving.write({"a": torch.full((1 << 16,), float(number), device="cpu")}, path, number)
                os.write(writer, b"1") if number == last + 1 else None
        os.read(reader, 1)  # some saves, and a part of one
        time.sleep(draw.random() / 20)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
        with safe_open(path, "pt") as file:
            found = int(file.metadata()[saving.STEP])
        assert found > last
        assert torch.equal(saving.read(path, found)["a"], torch.full((1 << 16,), float(found), device="cpu"))
        last = found


def test_the_log_says_where_layers_went_and_which_steps_were_skipped(tmp_path):
    class Spoil(transformers.TrainerCallback):
        """Says in the third step what a cast of Inf would say."""

        def on_step_begin(self, args, state, control, model=None, **kwargs):
            session(model).nonfinite.fill_(float(state.global_step == 2))

    overrides = {**te("delayed"), "layers.skip": "lm_head"}
    model = made()
    model.unused = torch.nn.Linear(64, 64)
    trainer = trainer_of(tmp_path, 4, [OctavoCallback(overrides=overrides), Spoil()], model, logging_steps=1)
    with pytest.warns(UserWarning, match="1 of 15 layers that were placed in FP8 made no FP8 call .*unused"):
        trainer.train()
    assert len(session(model).sites) == LAYERS
    assert logged(trainer, "octavo_fp8_layers") == [LAYERS - 1] * 5
    assert logged(trainer, "octavo_layers_without_calls") == logged(trainer, "octavo_host_layers") == [1] * 5
    assert logged(trainer, "octavo_skipped_steps") == [0, 0, 1, 1, 1]


def test_the_report_reaches_the_logger(tmp_path, caplog):
    with caplog.at_level("INFO", logger="octavo"):
        trainer_of(tmp_path, 1, [OctavoCallback(overrides=te())]).train()
    assert "model.layers.0.mlp.down_proj" in caplog.text


def test_a_callback_that_comes_too_late_is_refused(tmp_path):
    trainer = trainer_of(tmp_path, 1)
    trainer.add_callback(OctavoCallback(overrides=te()))
    with pytest.raises(StateError, match="callbacks="):
        trainer.train()


def test_an_optimizer_that_the_backend_cannot_step_is_refused(tmp_path):
    trainer = trainer_of(tmp_path, 1, [OctavoCallback(overrides=msamp())], optim="sgd")
    with pytest.raises(UnsupportedError, match="Adam"):
        trainer.train()


def test_training_twice_joins_the_optimizer_once(tmp_path):
    trainer = trainer_of(tmp_path, 3, [OctavoCallback(overrides=te())])
    trainer.train()
    number = session(trainer.model).number
    assert ops.calls(number, _abi.VERB_END_STEP) == 3
    trainer.train()
    assert ops.calls(number, _abi.VERB_END_STEP) == 6


def test_telemetry_is_logged(tmp_path):
    trainer = trainer_of(tmp_path, 5, [OctavoCallback(overrides=te(telemetry=True), record_every_n_steps=2)], logging_steps=1)
    trainer.train()
    values = logged(trainer, "octavo/sqnr_db/w/model.layers.0.mlp.up_proj.weight")
    assert len(values) == 6 and values[0] == values[1] != values[2] == values[3] != values[4]  # and the summary
    assert all(20 < v < 40 for v in values)
