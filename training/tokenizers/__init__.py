from twinlens.training.tokenizers.clip import CLIP_VOCABULARY_SIZE, clip_tokenizer, coca_tokenizer
from twinlens.training.tokenizers.hugging_face import hugging_face_tokenizer, needs_no_conversion
from twinlens.training.tokenizers.tokenizer_export import TokenizerExport

__all__ = [
    "CLIP_VOCABULARY_SIZE",
    "TokenizerExport",
    "clip_tokenizer",
    "coca_tokenizer",
    "hugging_face_tokenizer",
    "needs_no_conversion",
]
