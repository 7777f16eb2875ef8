"""The conformance kit: tests of the SerDe interface's laws for any strategy, plug-ins included."""

from serde_lab.serde.conformance.kit import Conformance

__all__ = ["Conformance"]
