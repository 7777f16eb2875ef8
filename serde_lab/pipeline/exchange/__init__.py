"""Moves records between stages: encodes them as frames, sends the frames to their targets, decodes them."""
