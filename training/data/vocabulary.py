"""A small tokenizer for towers trained from scratch, learned from the captions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from twinlens.training.data.errors import DataError

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[START]", "[END]"


def learn_tokenizer(captions: Sequence[str], *, vocabulary_size: int) -> tuple[str, int]:
    """Byte-pair encoding of the captions' words, as a Hugging Face `tokenizers` file.

    Words as frequent as those of a small domain end up whole. Every text is wrapped in `[START] … [END]`; `[END]` gets
    the highest id, where open_clip's default pooling looks for it; `[PAD]` is 0.

    Args:
        captions: What to learn from.
        vocabulary_size: At most so many tokens, special ones included.

    Returns:
        The file's text and the number of tokens.

    Raises:
        DataError: if the captions hold no words.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: PLC0415

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - 2,
        special_tokens=[PAD, UNKNOWN],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(captions, trainer=trainer)
    size = tokenizer.get_vocab_size()
    if size <= 2:
        raise DataError("the captions hold no words to learn a vocabulary from")
    # Set in the file rather than through the trainer, which would number them first.
    content = json.loads(tokenizer.to_str())
    ends = {START: size, END: size + 1}
    content["model"]["vocab"].update(ends)
    content["added_tokens"] += [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, number in ends.items()
    ]
    piece = {"Sequence": {"id": "A", "type_id": 0}}
    start, end = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ends)
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, piece, end],
        "pair": [start, piece, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]} for token, number in ends.items()},
    }
    text = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return Tokenizer.from_str(text).to_str(), size + 2
