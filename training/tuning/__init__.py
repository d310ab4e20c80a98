"""Which parts of a dual encoder are trained, and how fast: locks, rates by layer, patch dropout."""
