"""Projects records of one schema to another: the plan, and its application to columns and values."""

from serde_lab.serde.projection.plan import Change, Projection, TargetColumn

__all__ = ["Change", "Projection", "TargetColumn"]
