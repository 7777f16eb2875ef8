"""The report of a history, from the plain data that `history --format json` prints.

Turns that document into a `report.page.Page`: series over runs, their steps, and who acknowledged
them. Must not know the gate, HTML or matplotlib.
"""
