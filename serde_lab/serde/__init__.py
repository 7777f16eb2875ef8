"""Strategies: ways to represent and serialise records, behind one interface (`interface.py`).

`registry.py` finds the strategies of the package and plug-ins; `conformance` tests any of them.
"""
