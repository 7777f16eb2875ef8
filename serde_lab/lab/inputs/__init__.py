"""The input batches of a scenario: where their rows come from, and where they are kept."""
