"""Usage patterns: what follows the training of a Trainer: evaluation, files, another Trainer."""
import os
import tempfile

import torch
import transformers

from patterns import PLAIN, boundaries, follows, is_prepared, pattern, values
from patterns_trainer import AREA, NOISE, STEPS, llama, logged, tiny_gpt, trainer_of


@pattern(AREA, "evaluate() and predict() after training")
def evaluated(prepare):
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(prepare, folder)
        trainer.train()
        found = trainer.evaluate()["eval_loss"]
        plain = trainer_of(PLAIN, folder)
        plain.model.load_state_dict(values(trainer.model))
        # one forward, without the noise of steps
        assert abs(plain.evaluate()["eval_loss"] - found) < 0.02
        assert abs(trainer.predict(trainer.eval_dataset).metrics["test_loss"] - found) < 1e-6


@pattern(AREA, "resume_from_checkpoint")
def resumed(prepare):
    with tempfile.TemporaryDirectory() as folder:
        def made():
            return trainer_of(prepare, folder, save_strategy="steps", save_steps=5)
        whole, again = made(), made()
        whole.train()
        again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-5"))
        assert logged(again) == logged(whole)
        assert all(torch.equal(a, b) for a, b in zip(values(again.model).values(),
                                                     values(whole.model).values()))


@pattern(AREA, "save_model, then from_pretrained into a plain model")
def saved(prepare):
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(prepare, folder)
        trainer.train()
        trainer.save_model(folder)
        plain = transformers.LlamaForCausalLM.from_pretrained(folder)
        expected = values(trainer.model)
        assert all(torch.equal(v, expected[k]) for k, v in values(plain).items())
        tokens = tiny_gpt.text(2)
        with torch.no_grad():
            found = trainer.model.eval()(tokens, labels=tokens).loss
            assert abs(found - plain.eval()(tokens, labels=tokens).loss) < 0.02


@pattern(AREA, "generate() after training")
def generated(prepare):
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(prepare, folder, learning_rate=1e-2)
        trainer.train()
        plain = llama()
        plain.load_state_dict(values(trainer.model))
        prompt = {"input_ids": tiny_gpt.text(2)[:, :8], "attention_mask": torch.ones(2, 8).long()}
        found, expected = (m.eval().generate(**prompt, max_new_tokens=8, do_sample=False)
                           for m in (trainer.model, plain))
        # Greedy choices between near ties may differ after the noise of FP8.
        assert found.shape == expected.shape == (2, 16)
        assert (found == expected).float().mean() > 0.6


@pattern(AREA, "a second Trainer for the same model, without the callback")
def second(prepare):
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for p in (prepare, PLAIN):
            first = trainer_of(p, folder)
            first.train()
            then = trainer_of(p, folder, first.model, callback=False, learning_rate=2e-3)
            before = boundaries(first.model)
            then.train()
            if is_prepared(first.model):
                assert boundaries(first.model) - before == STEPS
            runs.append(logged(first) + logged(then))
    follows(*runs, NOISE, falls=0.9)
