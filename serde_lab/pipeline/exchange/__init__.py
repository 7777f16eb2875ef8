"""Hops between stages: records become frames, are sent to their targets, and become records again."""
