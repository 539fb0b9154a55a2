"""Example scripts of Accelerate, read from the checkout that OCTAVO_ACCELERATE names and started as octavo run starts them,
unchanged but for a line of peers_run.py: they train in FP8 like in bfloat16. They need the packages datasets and evaluate,
and no network: models, texts and the metric are small ones of this file, in the places where the scripts look first."""
import csv
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
import torch
import transformers

CHECKOUT = os.environ.get("OCTAVO_ACCELERATE")
MISSING = [name for name in ("datasets", "evaluate") if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.skipif(not CHECKOUT, reason="OCTAVO_ACCELERATE names no folder of a checkout of Accelerate"),
              pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}, which the scripts import")]

HERE = pathlib.Path(__file__).resolve().parent
WORDS = [f"w{i}" for i in range(200)]
METRIC = '''import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int64")
        return evaluate.MetricInfo(description="", citation="",
                                   features=datasets.Features({"predictions": number, "references": number}))

    def _compute(self, predictions, references):
        return {"accuracy": sum(a == b for a, b in zip(predictions, references)) / len(references)}
'''
DATA = "---\nconfigs:\n- config_name: mrpc\n  data_files:\n" + "".join(
    f"  - split: {split}\n    path: {split}.csv\n" for split in ("train", "validation")) + "---\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the scripts load by name, found in the folder where they run."""
    folder, draw = tmp_path_factory.mktemp("peers"), random.Random(0)
    for name in ("bert-base-cased", "tiny-gpt2", "glue", "nyu-mll/glue"):
        (folder / name).mkdir(parents=True)
    torch.manual_seed(0)
    sizes = {"vocab_size": 5 + len(WORDS)}
    transformers.BertForSequenceClassification(transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, max_position_embeddings=64,
        **sizes)).save_pretrained(folder / "bert-base-cased")
    transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, n_positions=64, **sizes)
                                 ).save_pretrained(folder / "tiny-gpt2")
    vocabulary = folder / "bert-base-cased" / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    words = transformers.BertTokenizerFast(str(vocabulary), do_lower_case=False)
    words.save_pretrained(folder / "bert-base-cased")
    transformers.PreTrainedTokenizerFast(tokenizer_object=words.backend_tokenizer, unk_token="[UNK]", pad_token="[PAD]"
                                         ).save_pretrained(folder / "tiny-gpt2")
    (folder / "glue" / "glue.py").write_text(METRIC)
    (folder / "nyu-mll" / "glue" / "README.md").write_text(DATA)
    for split, count in (("train", 192), ("validation", 64)):
        with open(folder / "nyu-mll" / "glue" / f"{split}.csv", "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f)
            out.writerow(["sentence1", "sentence2", "label", "idx"])
            for i in range(count):
                first, same = draw.choices(WORDS, k=6), i % 2
                out.writerow([" ".join(first), " ".join(first if same else draw.choices(WORDS, k=6)), same, i])
        lines = [" ".join(draw.choices(WORDS, k=12)) for _ in range(2 * count)]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return folder


BERT = ["--model_name_or_path", "bert-base-cased", "--checkpointing_steps", "epoch", "--output_dir", "saved"]
GPT = ["--model_name_or_path", "tiny-gpt2", "--train_file", "train.txt", "--validation_file", "validation.txt",
       "--block_size", "32", "--num_train_epochs", "2", "--learning_rate", "1e-3", "--seed", "7", "--output_dir", "gpt"]
SHARDED = {"OCTAVO_FSDP2_ON_CPUS": "1", "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2",
           "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer"}
# script, its arguments, ranks, variables, changed lines, kind of ranks, layers in FP8
RUNS = {"one process": ("nlp_example.py", ["--cpu"], 1, {}, 0, "NO", 14),
        "two ranks": ("nlp_example.py", ["--cpu"], 2, {}, 0, "MULTI_CPU", 14),
        "DDP": ("by_feature/fsdp_with_peak_mem_tracking.py", BERT, 2, {}, 1, "MULTI_CPU", 14),
        "FSDP2": ("by_feature/fsdp_with_peak_mem_tracking.py", BERT, 2, SHARDED, 1, "FSDP", 14),
        "GPT": ("by_feature/deepspeed_with_config_support.py", GPT, 1, {}, 0, "NO", 9)}


def found(folder, name, precision):
    """What peers_run.py found on each rank."""
    script, arguments, ranks, variables, *_ = RUNS[name]
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(HERE), str(pathlib.Path(sys.prefix, "apart", "deepspeed"))]
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "ACCELERATE_USE_CPU": "true",
                   "ACCELERATE_MIXED_PRECISION": precision, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1",
                   "HF_DATASETS_OFFLINE": "1", "TESTING_MOCKED_DATALOADERS": "1"}
    done = subprocess.run([sys.executable, *launcher, HERE / "peers_run.py", pathlib.Path(CHECKOUT, "examples", script), *arguments],
                          cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"losses"')]


@pytest.mark.parametrize("name", RUNS)
def test_it_trains_as_in_bfloat16(folder, name):
    ranks, changes, kind, layers = RUNS[name][2], *RUNS[name][4:]
    plain, fp8 = found(folder, name, "bf16"), found(folder, name, "fp8")
    assert len(plain) == len(fp8) == ranks
    for one in fp8:
        assert (one["changes"], one["kind"], one["layers"]) == (changes, kind, layers), one
    assert all("layers" not in one for one in plain)
    means = [[sum(of) / ranks for of in zip(*(one["losses"] for one in run))] for run in (plain, fp8)]
    assert len(means[0]) == len(means[1]) > 10
    difference = max(abs(a - b) / a for a, b in zip(*means))
    print(f"{name}: {len(means[1])} steps, last loss {means[0][-1]:.4f} in bf16 and {means[1][-1]:.4f}, at most {difference:.2%} apart")
    assert difference < 0.02
