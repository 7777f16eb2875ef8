"""Pages and their formats: reports of runs, comparisons and histories, and what commands print.

`page` defines a page's shape; `render` writes files and HTML, `formats` every other format; `run`,
`comparison_page` and `history_page` build reports; `plots` draws; `notation` formats numbers. Nothing is
judged here: verdicts arrive as plain data.
"""
