"""int8 and fp16 files for the towers of a bundle, kept only if they pass the agreement gate."""
