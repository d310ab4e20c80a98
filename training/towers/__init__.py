"""Towers that open_clip does not build: each is data in a model's configuration, and a builder here."""
