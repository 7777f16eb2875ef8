"""The report of one run: its facts, and a module for each section of its page.

Turns a run into a `report.page.Page`. Must not know HTML or matplotlib.
"""
