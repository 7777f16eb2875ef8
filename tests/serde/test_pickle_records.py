"""pickle keeps the laws of the SerDe interface, and its records are what its docstring says."""

from pathlib import Path

from serde_lab.serde.conformance import Conformance


class TestPickle(Conformance):
    name = "pickle"
    golden = Path(__file__).parent / "golden"
    own_options = ({}, {"layout": "dict"}, {"pickler": "cloudpickle"})
    # a pickle is a program, as fairness() says
    survives_flipped_bits = False
