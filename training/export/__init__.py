"""From torch modules and checkpoints to a published bundle."""
