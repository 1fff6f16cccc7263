"""What a chat template adds to a message, against transformers rendering the real templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from fullstep.datasets import measure_lengths, open_tables, overhead, tokenizer_counter

pytestmark = pytest.mark.real_classes

TEMPLATES = {
    "ChatML": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}",
        ["<|im_start|>", "<|im_end|>"],
    ),
    "Llama 3": (
        "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
        "{{ m['content'] + '<|eot_id|>' }}{% endfor %}",
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    ),
    "Gemma": (
        "{% for m in messages %}{{ '<start_of_turn>' + m['role'] + '\\n' + m['content'] + '<end_of_turn>\\n' }}{% endfor %}",
        ["<start_of_turn>", "<end_of_turn>"],
    ),
}
WORDS = ["user", "assistant", "Where", "is", "the", "sun", "In", "sky", "\n", "\n\n"]
MESSAGES = [{"role": "user", "content": "Where is the sun"}, {"role": "assistant", "content": "In the sky"}]


@pytest.mark.parametrize("name", TEMPLATES)
def test_five_tokens_a_message(name: str, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 (slow to import, and only here)

    template, special = TEMPLATES[name]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    apart = [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split(Regex("\n+"), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(apart)
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    chat = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), chat_template=template)
    rendered = chat(chat.apply_chat_template(MESSAGES, tokenize=False), add_special_tokens=False)["input_ids"]

    (tmp_path / "a.json").write_text(json.dumps([{"messages": MESSAGES}]))
    found = measure_lengths(open_tables([str(tmp_path / "a.json")]), tokenizer_counter(str(tmp_path)), None)
    assert 0 not in rendered
    assert list(found.tokens) == [len(rendered)] == [4 + 3 + 2 * overhead("tokens_per_message").value.likely]
