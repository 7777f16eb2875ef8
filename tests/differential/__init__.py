"""The same histories of writes by Apache Hudi and by the lab, read by every reader: nothing may differ.

A `kind` is all that a table is, and the operations of its commits; a `history` is the rows of those
commits. Histories of one kind share one table: each has a letter in its keys, and a bucket of its own,
so that it fares as it would alone. `made` draws both; `trial` carries a batch of them out.
"""
