"""Strategies: ways to represent and serialise records, behind one interface (`interface.py`).

Owns the interface, the strategies that come with the package, the registry that finds plug-ins, and
the conformance kit that judges them all. Must not know tables, Spark, clocks or scenarios.
"""
