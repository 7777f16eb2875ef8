"""Merging: decides which record of a key survives and what it holds, by rules, combiners and mergers."""
