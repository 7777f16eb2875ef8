"""Reports of runs, comparisons and histories: one self-contained page each.

`render` writes files; `html` and `formats` write out a page; `run`, `comparison` and `history` build the
page; `page` defines its shape; `plots` draws; `notation` formats numbers. Nothing is judged here:
verdicts arrive as plain data.
"""
