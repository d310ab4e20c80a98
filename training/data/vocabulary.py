"""A small tokenizer for towers trained from scratch, learned from the captions."""

from __future__ import annotations

import json
from collections.abc import Sequence

from twinlens.training.data.errors import DataError

PAD, START, END = "[PAD]", "[START]", "[END]"


def learn_tokenizer(captions: Sequence[str], *, vocabulary_size: int) -> tuple[str, int]:
    """Byte-level BPE of the captions, as a Hugging Face `tokenizers` file: nothing is ever unknown.

    The words of a small domain end up whole. Letter case does not count. Every text is wrapped in `[START] … [END]`;
    `[END]` gets the highest id, where open_clip's default pooling looks for it; `[PAD]` is 0.

    Args:
        captions: What to learn from.
        vocabulary_size: At most so many tokens: the 256 bytes, 3 special ones, and merges.

    Returns:
        The file's text and the number of tokens.

    Raises:
        DataError: if the captions hold no words.
        ValueError: if the vocabulary is smaller than 259.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: PLC0415

    if vocabulary_size < 259:
        raise ValueError("the bytes and special tokens alone are 259")
    if not any(caption.strip() for caption in captions):
        raise DataError("the captions hold no words to learn a vocabulary from")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - 2,
        special_tokens=[PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Half a surrogate pair has no bytes to learn; the caption that holds it is refused when it is tokenised.
    readable = (caption.encode("utf-8", "ignore").decode("utf-8") for caption in captions)
    tokenizer.train_from_iterator(readable, trainer=trainer)
    size = tokenizer.get_vocab_size()
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
