"""A real SFT run of TRL under a probe. Run by `make test-slow`, which installs TRL for it."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from fullstep.lab.probe.command.probe import WantedCommand, run_command_probe

TRL = "trl>=1.16,<2"
TRAINING = """
import sys
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", "one", "two", "three"])}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
arguments = SFTConfig(
    sys.argv[1], max_steps=int(sys.argv[2]), per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], use_cpu=True,
    save_strategy="no", disable_tqdm=True, max_length=32, bf16=False, gradient_checkpointing=False,
)
rows = Dataset.from_dict({"text": ["one two three " * 8] * 64})
SFTTrainer(LlamaForCausalLM(config), arguments, train_dataset=rows, processing_class=tokenizer).train()
"""
PARAMETERS = 2 * 64 * 32 + 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32) + 32


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with TRL beside what is installed here. A failure to install it is a failure of the test."""
    folder = tmp_path_factory.mktemp("trl") / "venv"
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    done = subprocess.run([found, "-m", "pip", "install", "--quiet", TRL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize("steps", [None, 4])
def test_a_fine_tuning_by_trl(python: Path, tmp_path: Path, steps: int | None) -> None:
    script = tmp_path / "sft.py"
    script.write_text(TRAINING, encoding="utf-8")
    command = (str(python), str(script), str(tmp_path / "run"), "6" if steps is None else "100000")
    probe = run_command_probe(WantedCommand(command, steps, counts_memory=True, silent_seconds=300.0))
    assert (probe.outcome, probe.world_size) == ("completed", 1), probe.reason
    (rank,) = probe.ranks
    assert [sample.step for sample in rank.steps] == list(range(3, (steps or 6) + 1))
    assert all(0 < sample.data_seconds < sample.seconds for sample in rank.steps)
    assert rank.peak is not None and rank.peak.allocated_peak_bytes > 16 * PARAMETERS  # weights, gradients and two states in float32
