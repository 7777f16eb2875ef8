"""Reports of runs, comparisons and histories: one self-contained page each.

From here down: `render` writes files, `html` and `formats` write a page out, `run` puts the page of a
run together, `page` is its shape, `plots` draws, `notation` writes numbers. This room reads `runs` and
judges nothing: verdicts come to it as plain data.
"""
