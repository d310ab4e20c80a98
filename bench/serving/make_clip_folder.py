"""Writes transformers' CLIP with random weights into a folder that holds `vocab.json` and `merges.txt`.

Run as `python make_clip_folder.py FOLDER` in an environment with transformers and torch; nothing else is needed.
transformers' default configuration of CLIP is ViT-B/32.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def main(folder: str) -> None:
    torch: Any = import_module("torch")  # of another environment than the one this is checked in, and another version
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    tokenizer = transformers.CLIPTokenizerFast.from_pretrained(folder)
    config = transformers.CLIPConfig()
    # Texts are pooled at the end token.
    config.text_config.eos_token_id = tokenizer.eos_token_id
    config.text_config.bos_token_id = tokenizer.bos_token_id
    config.text_config.pad_token_id = tokenizer.pad_token_id
    # Infinity asks which class it is.
    config.architectures = ["CLIPModel"]
    transformers.CLIPModel(config).eval().save_pretrained(folder)
    transformers.CLIPProcessor(transformers.CLIPImageProcessor(), tokenizer).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
