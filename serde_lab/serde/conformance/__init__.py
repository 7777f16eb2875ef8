"""The conformance kit: the laws of the SerDe interface, for any strategy and any plug-in."""

from serde_lab.serde.conformance.kit import Conformance

__all__ = ["Conformance"]
