from twinlens.training.tokenizers.clip import (
    CLIP_VOCABULARY_SIZE,
    clip_text_spec,
    clip_tokenizer,
    coca_tokenizer,
    open_clip_tokenizer_json,
)
from twinlens.training.tokenizers.hugging_face import hugging_face_tokenizer
from twinlens.training.tokenizers.tokenizer_export import TokenizerExport

__all__ = [
    "CLIP_VOCABULARY_SIZE",
    "TokenizerExport",
    "clip_text_spec",
    "clip_tokenizer",
    "coca_tokenizer",
    "hugging_face_tokenizer",
    "open_clip_tokenizer_json",
]
