"""Random histories of tables: every reader must see the rows of a model that has no code of the lab.

`made` draws a `history` (a table's `kind`, and its steps); `trial` has writers carry it out and readers
look at it; `model` says what they must see; `smaller` makes one that differs as small as it can be.
"""
