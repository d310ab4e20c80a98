"""Collections: SQLite is the truth, FAISS the acceleration.

A data folder holds `.lock` and, per collection, `collections/<id>/collection.db` and `collections/<id>/blobs/`.

From the outside in: `catalog` (the data folder) → `collection` (items and search) and `refill` (generations), which
share `state` → `database`, `blobs` (what is on disk) and an engine per modality (what is in memory, built from the
database on opening). `store` and `generations` hold the SQL.

An engine is any `protocol.VectorIndex`; `Catalog(root, engine=…)` takes a maker of them. A new one joins `ENGINES` in
`tests/index/conftest.py` and then has to pass the same tests as exact FAISS (`flat`). Not here yet: feedback and jobs
(tables of a later schema), approximate kinds with background merges, filters, backups, other places for originals.
"""
