"""Collections: SQLite is the truth, FAISS the acceleration.

A data folder holds `.lock` and, per collection, `collections/<id>/` with

    collection.db   the truth: items, vectors of every generation, and what has changed since the last merges
    blobs/          the originals
    indexes/        merged vectors, one folder a segment; derived, and built again from the database when damaged

From the outside in: `catalog` (the data folder) → `collection` (a facade) → `reading`, `writing`, `refill`
(generations), `filters/` and `operations/` (check, backup, duplicates, …), which share `state` → `database`, `blobs`
(what is on disk) and an engine per modality (what searches). `store` and `generations` hold the SQL.

`tree/` is the engine that serves: `tree_index` holds a `view` of merged vectors that never change, fresh ones beside
them (`flat`), and what is hidden; `merge` builds the next segment beside the one that serves and swaps it in, `policy`
says when, `maintenance` is the thread that does it, `open_trees` what a restart reads. `kinds/` is what may lie over
merged vectors, and how they lie on disk.

An engine is any `protocol.VectorIndex`; `Catalog(root, engine=…)` takes a maker of others, as `milvus/` has one. A new
one joins `ENGINES` in `tests/index/conftest.py` and then has to pass the same tests. Not here yet: feedback and jobs
(tables of a later schema).
"""
