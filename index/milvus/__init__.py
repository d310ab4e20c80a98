"""Milvus as the engine: Milvus Lite under collections whose truth is SQLite, or a server that holds the truth too."""
