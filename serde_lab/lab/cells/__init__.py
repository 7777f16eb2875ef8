"""Measures one cell: a strategy, a control, a peer or a codec arm in one round."""
