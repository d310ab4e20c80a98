"""The starter encoder: real photos and English text, with no download beyond PyPI."""
