"""Reports of runs, comparisons and histories: one self-contained page each.

From here down: `render` writes files, `run_page` puts a page together, the `*_section` modules and
`answer`, `doubts`, `ladder`, `time_split` and `provenance` say what is in it, `page` and `drawings`
are its values, and `html`, `formats`, `plots`, `canvas` and `svg` write them out. This room reads
`runs` and judges nothing: verdicts come to it as plain data.
"""
